"""Readers of outside files, one module per format. Each is registered with what tells its files from others."""
