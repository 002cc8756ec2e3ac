"""All that touches numba: flags, caches, pointers, vectors, and the way from a user's function to a C function."""
