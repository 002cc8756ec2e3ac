"""The page of a report: one HTML file without scripts, which reads on a desk, on a phone and on two sheets of paper.

`frame` is the document and its style, `dots` draws, `parts` makes tables, bars and lists; the other files say what a page is about. They
import the judging of experiments, and neither matplotlib nor polars, so that every installation can write a report.
"""
