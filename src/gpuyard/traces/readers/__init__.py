"""Readers of outside files, one module per format. Each registers with a function that recognises its files."""
