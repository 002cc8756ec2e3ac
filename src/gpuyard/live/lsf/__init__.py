"""LSF: reads what its commands print into a snapshot, and lets a scheduler work beside it.

`text` parses commands; `commands` calls them; `modes` says what is sent, or published for the plugin of LSF's scheduler, whose C source
lies in `plugin`; `hooks` are the scripts that LSF runs at a submission. What LSF and Slurm share is in `live.deployment`.
"""
