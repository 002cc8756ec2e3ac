"""Building blocks of learners: networks, replay, schedules, normalisation, compiled methods. Nothing here knows a single algorithm."""
