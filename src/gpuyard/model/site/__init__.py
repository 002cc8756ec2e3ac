"""The rules of a site beyond its nodes: what a job may not do yet, and why. It imports nothing but `errors`."""
