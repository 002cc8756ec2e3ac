"""Answers what a browser may ask, page by page. Each file makes a router; FastAPI writes the schema from it."""
