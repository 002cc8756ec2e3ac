"""Where the dashboard looks: a node, a batch system, or files. Each turns what it is told into one form, in a thread of its own."""
