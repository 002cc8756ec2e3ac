"""The dashboard that `gpuyard serve` shows: the cluster now, results, trainings and comparisons, in a browser.

One collector asks the node or the batch system, however many watch. It needs the extra `web`; nothing below imports it. What a browser gets
lies in `static`: plain modules, no build step, nothing from elsewhere.
"""
