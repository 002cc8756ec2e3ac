"""Completes words in the shell: what could follow, and the scripts that bash, zsh and fish load.

The names come from `names.json`, which `python docs/pages/completion.py` writes from the registries: to import those takes a second.
"""
