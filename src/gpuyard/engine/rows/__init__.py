"""Rows of the state that few kernels know: those of a rank pass, of a site beyond its nodes, and sums over time."""
