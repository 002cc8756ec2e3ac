"""From a TOML file to the Runs of an experiment."""
