"""What learners are made of: networks, replay, schedules, normalisation."""
