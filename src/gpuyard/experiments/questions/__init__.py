"""Answers what operators ask: what if the site were another, how large must it be, is the winner stable.

All of it is simulated in pairs on the same jobs. It imports traces, the engine and the statistics, nothing of the terminal or of reports.
"""
