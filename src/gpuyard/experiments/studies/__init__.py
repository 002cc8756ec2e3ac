"""Studies that need their own code: evaluating, explaining, the shift of a distribution."""
