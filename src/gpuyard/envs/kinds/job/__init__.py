"""PickJob: which waiting job goes next. A network that learns it is an ordering."""
