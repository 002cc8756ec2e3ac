"""Turns a TOML file into the Runs of an experiment."""
