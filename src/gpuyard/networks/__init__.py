"""A trained network as plain arrays: its form, its file, and the compiled code that evaluates it inside the engine and in production.

It needs no learning framework. The policies that come with the package lie in `shipped`.
"""
