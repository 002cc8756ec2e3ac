"""The rules of a site beyond its nodes: what a job may not do yet, and why; and the notation of batch systems, for logs and live states.

It imports nothing but `errors` and `units`.
"""
