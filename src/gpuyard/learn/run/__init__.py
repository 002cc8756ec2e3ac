"""A training from beginning to end: its plan, its folder, its validation, its curves."""
