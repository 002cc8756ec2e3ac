"""Features of learned policies: arrays from a Snapshot or a simulation, with names, masks and a hash; the same in production."""
