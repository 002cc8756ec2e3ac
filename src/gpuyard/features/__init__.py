"""What a learned policy sees: Snapshot or simulation → arrays, with names, masks and a hash; the same in training and in production."""
