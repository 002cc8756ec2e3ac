"""Building blocks of learners: networks, replay, schedules, normalisation."""
