"""Ctrl-C reaches a process that is in compiled code."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from gpuyard.engine import interrupts as listening
from gpuyard.engine.compiler.jit import INTERPRETED
from gpuyard.engine.interrupts import EXIT_CODE

PATIENCE = 120.0  # s; a hang would last for ever

SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets commands in the background ignore it
from gpuyard import load_cluster, load_workload
from gpuyard.engine.compiler.compile import compile_keys
from gpuyard.engine.compiler.entry import engine
from gpuyard.engine.simulation import simulate
from gpuyard.engine.slots import Program, Slot

def endless(jobs, j, now):
    k = 0.0
    while k >= 0.0:
        k += jobs.gpus[j] + 1.0
        if k > 1e9:
            k = 0.0
    return k

def slow(jobs, j, now):
    k = 0.0
    for i in range(10_000_000):
        k += jobs.gpus[j] * i
    return k

class Given:
    def program(self):
        return Program((Slot(ordering=address, reads_clock=1),), "given")

address = compile_keys({"endless": endless, "slow": slow}[sys.argv[1]], 0)
workload, cluster = load_workload("family:shape=base,gpus=4"), load_cluster("1x1:a100")
engine()
print("begins", flush=True)
try:
    simulate(workload, cluster, Given())
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(7)
"""


@contextmanager
def begun(tmp_path: Path, policy: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process in which that policy runs, and wait until it does; it does not outlive the test."""
    path = tmp_path / "program.py"
    path.write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, str(path), policy], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(1.0)  # for the simulation to begin; the engine is loaded
        yield process
    finally:
        process.kill()


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
def test_one_ctrl_c_ends_a_long_run_at_the_next_instant(tmp_path: Path) -> None:
    with begun(tmp_path, "slow") as process:  # thousands of instants at 10 ms a job and more, which is hours
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 7
    assert out == "interrupted\n"


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
def test_the_second_ctrl_c_ends_a_policy_that_loops_for_ever(tmp_path: Path) -> None:
    with begun(tmp_path, "endless") as process:
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=2.0)
        process.send_signal(signal.SIGINT)
        _, talk = process.communicate(timeout=PATIENCE)
    assert process.returncode == EXIT_CODE
    assert "interrupted" in talk


FORKED = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from gpuyard.engine.interrupts import interrupts
listener = interrupts()
with listener:
    pass  # it listens from now on
child = os.fork()
if child == 0:
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        os._exit(5)
with listener:
    _, status = os.waitpid(child, 0)
    time.sleep(0.5)
    print(os.waitstatus_to_exitcode(status), int(listener._word[0]))
"""


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
def test_a_signal_of_a_forked_process_is_not_its_parents() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "5 0\n", done.stderr


FIRST_IN_A_THREAD = """
import os, signal, threading, time
signal.signal(signal.SIGINT, lambda *_: None)
from gpuyard.engine.interrupts import interrupts
helper = threading.Thread(target=interrupts)
helper.start()
helper.join()
with interrupts():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.5)
    print(int(interrupts()._word[0]))
"""


def test_it_listens_also_if_another_thread_asked_first() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_IN_A_THREAD], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "1\n", done.stderr


def test_threads_that_ask_at_once_get_the_same_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels know the address of its word: that of a second listener, which nobody keeps, made them pause for ever."""

    def made() -> listening.Interrupts:
        time.sleep(0.05)  # time for the others to ask
        return listening.Interrupts()

    monkeypatch.setattr(listening, "_made", cache(made))
    found: list[listening.Interrupts] = []
    threads = [threading.Thread(target=lambda: found.append(listening.interrupts())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
