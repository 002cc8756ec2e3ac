"""The verbs of a node: the daemon of a machine, its jobs, and what the machine can do.

`asked` is all that `submit` needs: it imports nothing but the standard library and the node's client.
"""
