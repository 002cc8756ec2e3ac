"""Changes to workloads and clusters: cuts, scalings and the perturbations of robustness experiments, by name in one registry."""
