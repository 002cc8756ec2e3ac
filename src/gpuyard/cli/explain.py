def explain() -> None:
    """x."""
