"""Joint placement by mixed-integer programming: the model, the search for a solution in time, and the decider that uses it."""
