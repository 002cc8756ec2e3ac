"""Rank: how long each job that may be stopped is judged to hold its devices. A network that learns it is a rank rule."""
