"""Measure the decision service, and write docs/reference/service.md.

    python benchmarks/service.py [--page] [--soak SECONDS]      # ten minutes of soak unless told otherwise

1,000 unequal hosts and 1,000 running jobs are registered. Clients are processes of their own that ask for the host of one job, wait for
the answer, and ask again: one alone, eight at once, and one beside others that send garbage, too much, or half of a request.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench import machine
from targets import Line, target_table, told

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "service.md"
HOSTS, RUNNING, CLIENTS = 1_000, 1_000, 8
SPELL, SPELLS = 2.0, 10  # s, how often
SCHEDULERS = ("learned:hosts", "fcfs/best/none")
AFTERWARDS = 15.0  # s in which the service drops clients that began a request and did not go on: then what they sent is no longer held
TICKS = os.sysconf("SC_CLK_TCK")
Spell = list[float]  # s that each request took
FORK = multiprocessing.get_context("fork")


class Talk:
    """A connection to the service."""

    def __init__(self, where: str) -> None:
        self.channel = socket.socket(socket.AF_UNIX)
        self.channel.connect(where)

    def ask(self, line: bytes) -> bytes:
        """Send a line and return the line that answers it."""
        self.channel.sendall(line)
        data = self.channel.recv(1 << 16)
        while not data.endswith(b"\n"):
            data += self.channel.recv(1 << 20)
        return data

    def tell(self, verb: str, **arguments: Any) -> Any:
        """Ask and expect that it is done."""
        answer = json.loads(self.ask(json.dumps({"verb": verb, **arguments}).encode() + b"\n"))
        if not answer.get("ok"):
            raise SystemExit(f"{verb}: {answer}")
        return answer


@contextmanager
def service(scheduler: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Run a service with registered hosts and jobs; yield its socket and its process."""
    where = str(folder / "service.sock")
    process = subprocess.Popen([sys.executable, "-m", "gpuyard", "decide", "--serve", where, "--scheduler", scheduler])
    try:
        while not Path(where).exists():
            time.sleep(0.05)
        fill(Talk(where))
        yield where, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def fill(talk: Talk) -> None:
    """Register the hosts, and let jobs run on those that the service picks."""
    rng = random.Random(1)
    sizes = [(rng.choice((16, 32, 64, 128)), rng.choice((64, 128, 256, 512)), rng.choice((0, 4, 8))) for _ in range(HOSTS)]
    nodes = [{"names": [f"h{k}"], "cpus": c, "memory": m, "gpus": g, "type": "a100" if g else "cpu"} for k, (c, m, g) in enumerate(sizes)]
    talk.tell("register", cluster={"nodes": nodes})
    for k in range(RUNNING):
        talk.tell("pick", job=f"r{k}", request=request(rng), take=True)


def request(rng: random.Random) -> dict[str, Any]:
    """Return what a job asks for."""
    return {"gpus": rng.choice((0, 0, 1, 2)), "cpus": rng.randint(1, 8), "memory": rng.randint(1, 32), "estimate": rng.randint(60, 7200)}


# ── clients ──


def picking(where: str, seconds: float, seed: int) -> Spell:
    """Ask where one job after the other would run; return the time of each."""
    rng, talk = random.Random(seed), Talk(where)
    lines = [json.dumps({"verb": "pick", "request": request(rng)}).encode() + b"\n" for _ in range(64)]
    found: Spell = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        at = time.perf_counter()
        answer = talk.ask(lines[len(found) % 64])
        found.append(time.perf_counter() - at)
        if b'"ok":true' not in answer:
            raise SystemExit(answer.decode())
    return found


def churning(where: str, seconds: float, seed: int) -> Spell:
    """Let jobs come, start where they are picked, and end, so that the register changes with every decision."""
    rng, talk = random.Random(seed), Talk(where)
    found: Spell = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        name = f"{seed}-{len(found)}"
        at = time.perf_counter()
        talk.tell("pick", job=name, request=request(rng), take=True)
        found.append(time.perf_counter() - at)
        talk.tell("update", changes=[{"job": name, "do": "end"}])
    return found


def disturbing(where: str, seconds: float, seed: int) -> Spell:
    """Send garbage, more than is allowed, and halves of requests that never end."""
    rng, end = random.Random(seed), time.perf_counter() + seconds
    idle = []
    while time.perf_counter() < end:
        with suppress(OSError):
            talk = Talk(where)
            talk.channel.settimeout(0.2)
            kind = rng.randrange(3)
            talk.channel.sendall((rng.randbytes(200) + b"\n", b"[" * 20_000_000, b'{"verb": "pick", ')[kind])
            if kind == 2:
                idle.append(talk)
            else:
                talk.channel.recv(1000)
        time.sleep(0.05)
    return []


def at_once(work: Sequence[Any], where: str, seconds: float) -> list[Spell]:
    """Run each client in a process of its own."""
    with FORK.Pool(len(work)) as pool:
        return [each.get() for each in [pool.apply_async(one, (where, seconds, seed)) for seed, one in enumerate(work)]]


# ── what is measured ──


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has had."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def megabytes(pid: int) -> float:
    """Return what a process holds in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def throughput(label: str, where: str, pid: int) -> Iterator[Line]:
    """Let eight clients ask as fast as they can."""
    for one, what, target in ((picking, "picks", "≥ 2,000"), (churning, "picks that start a job, which then ends", "")):
        rates, cost = [], []
        for _ in range(SPELLS if target else SPELLS // 2):
            before = cpu_seconds(pid)
            made = sum(map(len, at_once([one] * CLIENTS, where, SPELL)))
            rates.append(made / SPELL)
            cost.append(1e6 * (cpu_seconds(pid) - before) / made)
        note = f"best of {len(rates)} spells of {SPELL:g} s, median {statistics.median(rates):,.0f}; "
        note += f"{statistics.median(cost):.0f} µs CPU of the service each"
        yield Line(f"`{label}`: {what} a second, {CLIENTS} clients", f"{max(rates):,.0f}", target, note)


def latency(label: str, where: str) -> Iterator[Line]:
    """Let one client ask alone, and beside three that do harm."""
    alone, beside = [], []
    for _ in range(SPELLS):
        alone.append(at_once([picking], where, SPELL)[0])
        beside.append(at_once([picking, *[disturbing] * 3], where, SPELL)[0])
    for spells, what, goals in ((alone, "one client", ("< 1 ms", "< 2 ms")), (beside, "one beside three that do harm", ("", ""))):
        best = min(spells, key=lambda spell: percentile(spell, 99))
        for share, goal in zip((50, 99), goals, strict=True):
            found = [percentile(spell, share) for spell in spells]
            note = f"best of {len(spells)} spells of {SPELL:g} s, which gave {min(found):.2f} to {max(found):.2f} ms"
            yield Line(f"`{label}`: a pick, {what}: p{share}", f"{percentile(best, share):.2f} ms", goal, note)


def percentile(spell: Spell, share: int) -> float:
    """Return a percentile in ms."""
    return 1000 * sorted(spell)[min(len(spell) * share // 100, len(spell) - 1)]


def soak(where: str, pid: int, seconds: float) -> Line:
    """Work for long, with changes and harm; compare the memory after a tenth of the time with that at the end."""
    work = [churning, churning, picking, disturbing]
    at_once(work, where, seconds / 10)
    time.sleep(AFTERWARDS)
    before = megabytes(pid)
    made = sum(map(len, at_once(work, where, 0.9 * seconds)))
    time.sleep(AFTERWARDS)
    after = megabytes(pid)
    note = f"{before:.1f} MB after a tenth of the time, {after:.1f} MB at the end; {made:,} decisions, with changes and harm"
    return Line(f"growth of memory in {seconds:g} s", f"{max(after - before, 0.0):.1f} MB", "< 2 MB", note)


def measure(seconds: float) -> Iterator[Line]:
    """Yield every row."""
    for scheduler in SCHEDULERS:
        with tempfile.TemporaryDirectory() as place, service(scheduler, Path(place)) as (where, pid):
            yield from latency(scheduler, where)
            yield from throughput(scheduler, where, pid)
            if scheduler == SCHEDULERS[0]:
                yield soak(where, pid, seconds)


def page(lines: list[Line], facts: str) -> str:
    """Return the page."""
    return f"""# The decision service under load

Generated by `python benchmarks/service.py --page`; do not edit. {target_table(lines, facts)}

- A real [service](../guides/decision-service.md) on a Unix socket, one process. {HOSTS:,} hosts of different cores, memory and GPUs are
  registered, and {RUNNING:,} jobs run on them. A pick is one request: where would this job run now? `learned:hosts` asks the shipped
  network, which scores every host that has room.
- Clients are processes on the same {os.cpu_count()} cores, written in Python; each waits for an answer before it asks again.
- Other work shares the machine, so the best of several spells counts; the others show what else was going on.
- Harm: every twentieth of a second each of three clients opens a connection and sends random bytes, 20 MB of brackets, or half a request.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--soak", type=float, default=600.0, metavar="SECONDS", help="how long the memory is watched")
    given = parser.parse_args()
    facts, lines = machine(), told(measure(given.soak))
    if given.page:
        PAGE.write_text(page(lines, facts), encoding="utf-8")
        print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
