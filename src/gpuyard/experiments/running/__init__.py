"""Running an experiment: workers, the folder of results, and going on after an interruption."""
