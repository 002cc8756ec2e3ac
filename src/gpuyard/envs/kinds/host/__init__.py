"""PickHost: which node a job gets. A network that learns it is a placement."""
