"""Decides in a process of its own: `python -m gpuyard.live.node.advice.deciding SCHEDULER FILE`. One that hangs stops nothing else.

It says when it is loaded. Then each 4 bytes on stdin are the length of a snapshot, which lies in the open file of that number, and each
answer on stdout has its length in front. The daemon ends it by closing stdin.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import sys
import time
from typing import Any

LENGTH = struct.Struct("<I")
MOST_ORDER = 2000  # jobs whose place in the queue is told
_SET_PDEATHSIG = 1


def main(text: str, sheet: int) -> None:
    """Answer until stdin ends."""
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a policy prints goes to the log
    try:
        decide = _decider(text)
    except Exception as error:
        _send(answers, {"error": f"{type(error).__name__}: {error}"})
        return
    _send(answers, {"loaded": True})
    while size := requests.read(LENGTH.size):
        data = os.pread(sheet, LENGTH.unpack(size)[0], 0)
        began = time.perf_counter()
        try:
            answer = decide(data)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        _send(answers, answer | {"seconds": time.perf_counter() - began})


def _decider(text: str) -> Any:
    from gpuyard.engine.snapshots import revise_ends
    from gpuyard.live.state.wire import SnapshotReader
    from gpuyard.policies import parse_scheduler

    scheduler = parse_scheduler(text)
    begun, reader = scheduler.begin(), SnapshotReader()
    every = getattr(scheduler, "every", 0.0) or getattr(getattr(scheduler, "preemption", None), "every", 0.0)
    in_order = getattr(begun, "decide_in_order", None)

    def decide(data: bytes) -> dict[str, Any]:
        snapshot = reader.read(data)
        revise_ends(snapshot.live, snapshot.jobs.table["walltime"], snapshot.now, snapshot.rules)
        rows, decisions = in_order(snapshot) if in_order else (None, begun.decide(snapshot))
        order = [] if rows is None else snapshot.jobs.table["index"][rows[:MOST_ORDER]].tolist()
        keys = getattr(begun, "keys", ())[: len(order)] if order else ()
        made = [
            (each.job, each.action.value, [(part.node, part.gpus, part.devices) for part in each.parts], each.reason) for each in decisions
        ]
        return {
            "scheduler": scheduler.label,
            "decisions": made,
            "order": order,
            "keys": [round(float(key), 6) for key in keys if -1e300 < key < 1e300],
            "every": every,
        }

    return decide


def _send(answers: Any, answer: dict[str, Any]) -> None:
    data = json.dumps(answer).encode()
    answers.write(LENGTH.pack(len(data)) + data)
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
