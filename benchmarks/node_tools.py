"""Put job queues for one machine through the same faults, and write docs/reference/node-tools.md.

    apt-get install task-spooler nq parallel && pip install simple_gpu_scheduler
    python benchmarks/node_tools.py [--page] [--only TOOL …]      # some three minutes

Each tool runs the same jobs, four at once where it can. What it is put through: its queue is killed with -9 while jobs run, and started
again as its manual says; a job that hides its processes is cancelled; a job ends and leaves processes behind. A tool that is not installed
is left out, and the page says so.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "node-tools.md"
JOBS, ROUNDS, SLOTS = 24, 5, 4
NOTE = "echo once >> {folder}/ran.{k}; sleep 0.3; exit {code}"
HIDES = "trap '' TERM INT; setsid sleep 300 & (sleep 300 &); (setsid sh -c 'sleep 300 & wait' &); sleep 300"
HIDDEN = 4
LEAVES = "setsid sleep 300 & sleep 300 & exit 0"
MARK = "NODE_TOOLS_MARK"
PATIENCE = 120.0  # s


def code_of(k: int) -> int:
    """Every job has an exit code that tells it from its neighbours."""
    return (k * 7) % 5


def processes(mark: str, name: str = "") -> set[int]:
    """Return the processes that have the mark in their environment."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                if f"{MARK}={mark}".encode() in variables and name in (entry / "comm").read_text():
                    found.add(int(entry.name))
    return found


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(true: Callable[[], bool], patience: float = PATIENCE) -> bool:
    """Wait until something is true; return whether it came true."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.05)
    return False


class Tool:
    """A queue in a folder of its own. Everything that it starts has the mark in its environment."""

    name = ""
    program = ""
    again = ""  # what a person does after a crash
    cancelling = ""  # how a person cancels a job

    def __init__(self, folder: Path, mark: str) -> None:
        self.folder, self.mark = folder, mark
        self.env: dict[str, str] = {**os.environ, MARK: mark}
        self.commands: list[str] = []

    def call(self, *words: str) -> str:
        """Run a command of the tool, and return what it printed."""
        done = subprocess.run(words, env=self.env, cwd=self.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        return done.stdout

    def detached(self, *words: str, stdin: Path | None = None) -> int:
        """Start a process that outlives its terminal, as nohup does, and return its pid."""
        given = stdin.open() if stdin else subprocess.DEVNULL
        return subprocess.Popen(
            words, env=self.env, cwd=self.folder, stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        ).pid

    def run(self, commands: Sequence[str]) -> None:
        """Queue shell commands."""
        raise NotImplementedError

    def crash(self) -> None:
        """Kill the queue with -9."""
        raise NotImplementedError

    def recover(self) -> None:
        """Do what the tool's manual says after a crash."""

    def idle(self) -> bool:
        """Return whether it has nothing left to do."""
        raise NotImplementedError

    def codes(self) -> Mapping[int, int]:
        """Return the exit codes that the tool knows, by the place of the command."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Cancel the only job."""
        raise NotImplementedError

    def close(self) -> None:
        """End everything."""


class Gpuyard(Tool):
    """gpuyard itself."""

    name = "gpuyard"
    program = str(Path(sys.executable).with_name("gpuyard"))
    again = "`gpuyard node start`; by itself under systemd"
    cancelling = "`gpuyard cancel`"

    def __init__(self, folder: Path, mark: str) -> None:
        super().__init__(folder, mark)
        self.env |= {"GPUYARD_NODE": str(folder / "node"), "COLUMNS": "200"}
        self.call(self.program, "node", "start", "--cpus", str(SLOTS))
        self.run(["true"])
        self.call(self.program, "wait", "1")

    def run(self, commands: Sequence[str]) -> None:
        for command in commands:
            self.call(self.program, "submit", "--grace", "1s", "--", "sh", "-c", command)

    def crash(self) -> None:
        found = re.search(r"process (\d+)", self.call(self.program, "node", "status"))
        assert found
        os.kill(int(found[1]), signal.SIGKILL)

    def recover(self) -> None:
        self.call(self.program, "node", "start")

    def idle(self) -> bool:
        return "no job runs or waits" in self.call(self.program, "queue")

    def codes(self) -> Mapping[int, int]:
        rows = self.call(self.program, "history", "-n", "1000", "-f", "csv").splitlines()
        header = rows[0].split(",")
        number, code = header.index("id"), header.index("exit_code")
        table = [re.findall(r'("[^"]*"|[^,]*),?', row) for row in rows[1:]]
        return {int(row[number]) - 2: int(row[code]) for row in table if row[code]}

    def cancel(self) -> None:
        self.call(self.program, "cancel", "2")

    def close(self) -> None:
        self.call(self.program, "node", "stop")


class TaskSpooler(Tool):
    """task-spooler: a server, and a client process for each job."""

    name = "task-spooler"
    program = "tsp"
    again = "queue again what is lost, after finding out what that is"
    cancelling = "`tsp -k`"

    def __init__(self, folder: Path, mark: str) -> None:
        super().__init__(folder, mark)
        self.env |= {"TS_SOCKET": str(folder / "socket"), "TMPDIR": str(folder), "TS_MAXFINISHED": "1000"}
        self.call("tsp", "-S", str(SLOTS))
        (self.server,) = processes(mark, "tsp")
        self.numbers: dict[int, int] = {}

    def run(self, commands: Sequence[str]) -> None:
        for k, command in enumerate(commands):
            self.numbers[int(self.call("tsp", "sh", "-c", command))] = k

    def crash(self) -> None:
        os.kill(self.server, signal.SIGKILL)

    def recover(self) -> None:
        self.call("tsp", "-S", str(SLOTS))

    def idle(self) -> bool:
        return not re.search(r"^\d+ +(queued|running)", self.call("tsp"), re.M)

    def codes(self) -> Mapping[int, int]:
        rows = re.findall(r"^(\d+) +finished +\S+ +(-?\d+)", self.call("tsp"), re.M)
        return {self.numbers[int(number)]: int(code) for number, code in rows}

    def cancel(self) -> None:
        self.call("tsp", "-k")

    def close(self) -> None:
        self.call("tsp", "-K")


class Nq(Tool):
    """nq: a process for each job, which waits for those before it; one job at a time."""

    name = "nq"
    program = "nq"
    again = "nothing"
    cancelling = "`kill` of the job's process"

    def __init__(self, folder: Path, mark: str) -> None:
        super().__init__(folder, mark)
        self.env["NQDIR"] = str(folder / "nq")
        self.files: list[str] = []

    def run(self, commands: Sequence[str]) -> None:
        self.files += [self.call("nq", "sh", "-c", command).strip() for command in commands]

    def crash(self) -> None:
        """Kill the process that supervises the present job: there is no other queue."""
        for pid in processes(self.mark, "nq"):
            if any(Path(f"/proc/{child}/comm").read_text() != "nq\n" for child in children(pid)):
                os.kill(pid, signal.SIGKILL)

    def idle(self) -> bool:
        return subprocess.run(["nq", "-t", *self.files], env=self.env, check=False).returncode == 0

    def codes(self) -> Mapping[int, int]:
        found = {}
        for k, name in enumerate(self.files):
            with suppress(OSError):
                said = re.findall(r"\[exited with status (\d+)\.\]", (self.folder / "nq" / name).read_text())
                found |= {k: int(said[-1])} if said else {}
        return found

    def cancel(self) -> None:
        for pid in processes(self.mark, "nq"):
            for child in children(pid):
                os.kill(child, signal.SIGTERM)


class Listed(Tool):
    """A tool that is given a list of commands once."""

    pid = 0

    def run(self, commands: Sequence[str]) -> None:
        self.commands = list(commands)
        (self.folder / "list").write_text("".join(f"{each}\n" for each in commands))
        self.pid = self.begin()

    def begin(self) -> int:
        """Start it, and return its pid."""
        raise NotImplementedError

    def crash(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def recover(self) -> None:
        self.pid = self.begin()

    def idle(self) -> bool:
        with suppress(ChildProcessError):
            return os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        return True

    def cancel(self) -> None:
        os.killpg(self.pid, signal.SIGINT)


class Loop(Listed):
    """A shell loop under nohup; one job at a time."""

    name = "`nohup` and a loop"
    program = "bash"
    again = "take what has run off the list, and start it again (here it was only started again)"
    cancelling = "`kill -INT` of its process group"

    def begin(self) -> int:
        script = 'while IFS= read -r line; do sh -c "$line" < /dev/null; echo "$? $line" >> codes; done < list'
        return self.detached("bash", "-c", script)

    def codes(self) -> Mapping[int, int]:
        with suppress(OSError):
            rows = [line.split(" ", 1) for line in (self.folder / "codes").read_text().splitlines()]
            return {self.commands.index(command): int(code) for code, command in rows}
        return {}


class Parallel(Listed):
    """GNU parallel with a log."""

    name = "GNU parallel"
    program = "parallel"
    again = "`parallel --resume`"
    cancelling = "Ctrl-C"

    def begin(self) -> int:
        words = ["parallel", "--will-cite", "-j", str(SLOTS), "--joblog", "log", "--resume", "sh", "-c", "{}"]
        return self.detached(*words, stdin=self.folder / "list")

    def codes(self) -> Mapping[int, int]:
        with suppress(OSError):
            rows = [line.split("\t") for line in (self.folder / "log").read_text().splitlines()[1:]]
            return {int(row[0]) - 1: int(row[6]) for row in rows}
        return {}


class SimpleGpuScheduler(Listed):
    """simple_gpu_scheduler: commands from a list, one per GPU."""

    name = "simple_gpu_scheduler"
    program = "simple_gpu_scheduler"
    again = Loop.again
    cancelling = "Ctrl-C"

    def begin(self) -> int:
        return self.detached(self.program, "--gpus", *map(str, range(SLOTS)), stdin=self.folder / "list")

    def codes(self) -> Mapping[int, int]:
        return {}


TOOLS: tuple[type[Tool], ...] = (Gpuyard, TaskSpooler, Nq, Parallel, SimpleGpuScheduler, Loop)


# ── faults ──


@dataclass
class Outcome:
    """What became of a tool's jobs."""

    lost: int = 0  # never ran
    twice: int = 0
    unknown: int = 0  # exit codes that the tool does not know, or knows wrongly, of jobs that ran
    cancelled: int = 0  # processes left
    left: int = 0


def opened(kind: type[Tool], place: Path, number: int) -> Tool:
    """Make a tool in a new folder."""
    folder = place / f"{kind.__name__}{number}"
    folder.mkdir()
    return kind(folder, f"{os.getpid()}-{folder.name}")


def cleared(tool: Tool) -> None:
    """End the tool and whatever it has left."""
    tool.close()
    while found := processes(tool.mark):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)


def killed(kind: type[Tool], place: Path, outcome: Outcome) -> None:
    """Kill the queue while jobs run, start it again, and count."""
    dice = random.Random(1)
    for number in range(ROUNDS):
        tool = opened(kind, place, number)
        tool.run([NOTE.format(folder=tool.folder, k=k, code=code_of(k)) for k in range(JOBS)])
        until(lambda: any(tool.folder.glob("ran.*")))  # noqa: B023
        time.sleep(dice.uniform(0.0, 1.2))
        tool.crash()
        time.sleep(0.5)
        tool.recover()
        until(tool.idle)
        time.sleep(0.5)  # orphans end
        notes = [tool.folder / f"ran.{k}" for k in range(JOBS)]
        ran = [len(note.read_text().split()) if note.exists() else 0 for note in notes]
        known = tool.codes()
        outcome.lost += ran.count(0)
        outcome.twice += sum(times > 1 for times in ran)
        outcome.unknown += sum(times > 0 and known.get(k) != code_of(k) for k, times in enumerate(ran))
        cleared(tool)


def cancelled(kind: type[Tool], place: Path, outcome: Outcome) -> None:
    """Cancel a job whose processes hide and ignore TERM; count what is left after five seconds."""
    tool = opened(kind, place, ROUNDS)
    tool.run([HIDES])
    if not until(lambda: len(processes(tool.mark, "sleep")) == HIDDEN):
        raise SystemExit(f"{kind.name} has not started the job that hides")
    tool.cancel()
    time.sleep(5.0)
    outcome.cancelled = len(processes(tool.mark, "sleep"))
    cleared(tool)


def leaving(kind: type[Tool], place: Path, outcome: Outcome) -> None:
    """Let a job end that leaves two processes behind."""
    tool = opened(kind, place, ROUNDS + 1)
    tool.run([LEAVES])
    until(tool.idle, 5.0)
    time.sleep(1.0)
    outcome.left = len(processes(tool.mark, "sleep"))
    cleared(tool)


# ── the page ──


def page(found: Mapping[type[Tool], Outcome], absent: Sequence[str]) -> str:
    """Return the page."""
    of = JOBS * ROUNDS
    rows = []
    for kind, each in found.items():
        left = f"{each.cancelled} of {HIDDEN} | {each.left} of 2"
        rows.append(f"| {kind.name} | {each.lost} | {each.twice} | {each.unknown} | {left} |")
    missing = f"\n- Not installed when this was measured: {', '.join(absent)}." if absent else ""
    whole = [kind.name for kind, each in found.items() if not (each.lost or each.twice or each.unknown or each.cancelled or each.left)]
    after = "\n".join(f"    - {kind.name}: {kind.again}" for kind in found)
    return f"""# Queues for one machine, and faults

Of {len(found)} tools that went through the same faults, {" and ".join(whole) or "none"} lost no job and no exit code, ran no job twice and
left no process behind.

| tool | jobs lost | run twice | exit codes lost | left when cancelled | left when ended |
|---|---:|---:|---:|---:|---:|
{chr(10).join(rows)}

Generated by `python benchmarks/node_tools.py --page`; do not edit. {of} jobs of 0.3 s, each with an exit code of its own, in
{ROUNDS} rounds; the queue killed with `-9` while jobs ran, and started again as its manual says.

- After the crash a person must do this:
{after}
- **Jobs lost** never ran, although the tool was started again as its manual says. **Exit codes lost**: the job ran, and the tool does not
  know how it ended, or says something wrong.
- **Left when cancelled**: the job ignores TERM and starts four processes, three of them in sessions of their own or without their parent.
  Counted five seconds after it was cancelled ({"; ".join(f"{kind.name}: {kind.cancelling}" for kind in found)}).
- **Left when ended**: two processes in the background, which go on using its GPU.
- nq and a loop run one job at a time, the others four. nq has no queue but a process for each job; that of the running job was
  killed.{missing}
- The tools have other virtues: nq and a loop need no daemon, parallel spreads over machines, task-spooler is on every Debian. What a
  [node](../guides/your-gpu-workstation.md) does to keep exit codes is in [record 36](../decisions/0036-one-shim-per-job.md).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--only", nargs="+", choices=[kind.__name__ for kind in TOOLS])
    given = parser.parse_args()
    found, absent = dict[type[Tool], Outcome](), []
    for kind in TOOLS:
        if given.only and kind.__name__ not in given.only:
            continue
        if not shutil.which(kind.program):
            absent.append(kind.name)
            continue
        outcome = found[kind] = Outcome()
        with tempfile.TemporaryDirectory() as place:
            for fault in (killed, cancelled, leaving):
                fault(kind, Path(place), outcome)
        print(f"{kind.name}: {outcome}", flush=True)
    if given.page:
        PAGE.write_text(page(found, absent), encoding="utf-8")
        print(f"written: {shlex.quote(str(PAGE.relative_to(ROOT)))}")


if __name__ == "__main__":
    main()
