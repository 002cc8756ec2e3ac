"""LSF: reads what its commands print into a snapshot. Nothing here acts on LSF."""
