"""Rules of other systems, kept apart from our own."""
