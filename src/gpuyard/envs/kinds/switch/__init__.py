"""Switch: which scheduler is in use. A network that learns it is the switch rule of a meta-scheduler."""
