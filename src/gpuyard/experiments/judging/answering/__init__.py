"""The answer for a reader in a hurry: names for people, who gains and who pays, one sentence that says what is better, and how sure it is.

It rests on the summaries and the statistics of `judging`, and claims nothing that these do not.
"""
