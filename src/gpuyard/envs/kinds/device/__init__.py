"""PickDevice: the device of each task is left open."""
