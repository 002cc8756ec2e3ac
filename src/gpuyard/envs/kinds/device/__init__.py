"""PickDevice: which device a task goes to, CPU or GPU. A network that learns it is a decider."""
