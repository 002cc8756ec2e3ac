"""Reports for people: figures for paper and screen, tables, and one HTML file that says what an experiment found."""
