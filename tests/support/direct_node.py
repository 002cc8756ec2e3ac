"""The design without shims, for comparison: jobs are children of the daemon, and a database has their pids. `python direct_node.py FOLDER`

A daemon that finds a running job adopts it by its pid, and runs it again where that is gone. It is written with care, as many tools are:
each transition is a transaction.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from pathlib import Path

SLOTS = 4


def main(folder: Path) -> None:
    """Run all jobs of the table `jobs (id, command, state, pid, code)`."""
    database = sqlite3.connect(folder / "direct.db", isolation_level=None)
    children: dict[int, int] = {}
    adopted = {}
    for job, pid in database.execute("SELECT id, pid FROM jobs WHERE state = 'RUNNING'").fetchall():
        if Path(f"/proc/{pid}").exists():
            adopted[pid] = job
        else:
            database.execute("UPDATE jobs SET state = 'PENDING' WHERE id = ?", (job,))
    while database.execute("SELECT count(*) FROM jobs WHERE state != 'ENDED'").fetchone()[0]:
        while children and (found := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            job = children.pop(found[0])
            database.execute("UPDATE jobs SET state = 'ENDED', code = ? WHERE id = ?", (os.waitstatus_to_exitcode(found[1]), job))
        for pid in [pid for pid in adopted if not Path(f"/proc/{pid}").exists()]:
            database.execute("UPDATE jobs SET state = 'ENDED' WHERE id = ?", (adopted.pop(pid),))  # with what code nobody can say
        row = database.execute("SELECT id, command FROM jobs WHERE state = 'PENDING' ORDER BY id LIMIT 1").fetchone()
        if row and len(children) + len(adopted) < SLOTS:
            pid = os.spawnvp(os.P_NOWAIT, "sh", ["sh", "-c", row[1]])
            children[pid] = row[0]
            database.execute("UPDATE jobs SET state = 'RUNNING', pid = ? WHERE id = ?", (pid, row[0]))
        else:
            time.sleep(0.002)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
