"""Completion: what could follow, the file of names, and real shells in which the tabulator is pressed."""

from __future__ import annotations

import importlib.util
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.cli.completion.verb import SCRIPTS, WHERE, answer, split
from gpuyard.cli.completion.words import FILE, VALUES
from gpuyard.cli.verbs import command

ROOT = Path(__file__).parents[3]
BREAKS = " \t\n\"'><=;|&(:"
FREE = {
    "wait", "p95", "deadlines", "cost",  # parameters whose values nobody can list: numbers, times, texts of one's own
    "seed", "seeds", "column", "with_", "jobs", "preemptible", "checkpoint", "restart_cost", "checkpoint_cost", "drain", "every", "threads",
    "limit", "runs", "steps", "updates", "envs", "set_", "workers", "batches", "episodes", "top", "until", "from_", "user", "partition",
    "keep", "batch", "load", "shell", "options",
    "gpus", "gpu_memory", "cpus", "memory", "walltime", "begin", "deadline", "priority", "after", "after_any", "array", "job_class",
    "retry", "grace", "output_limit", "env", "template", "share", "patience", "ids", "job", "timeout", "tail", "since", "now",
    "cycles", "most", "within", "queue", "exclude_user", "exclude_queue", "exclude_partition", "admin", "default", "deadman", "behind",
    "slow", "strikes", "worse", "operator",
}  # fmt: skip


def bash(line: str) -> list[str]:
    """The words that bash is offered, without what else is possible."""
    return [each.partition("\t")[0] for each in answer(["bash", line, BREAKS], command()).splitlines()[1:]]


def flags(line: str) -> str:
    return answer(["bash", line, BREAKS], command()).splitlines()[0]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gpuyard sim", ["simulate"]),
        ("gpuyard trace conv", ["convert"]),
        ("gpuyard simulate dem", ["demo"]),
        ("gpuyard simulate demo --sch", ["--scheduler"]),
        ("gpuyard simulate demo --seed 1 --see", []),  # an option once,
        ("gpuyard simulate demo --metric wait --metr", ["--metric"]),  # unless it may be repeated
        ("gpuyard simulate demo --scheduler sjf/fewest/ea", ["sjf/fewest/easy"]),
        ("gpuyard simulate demo --scheduler sjf/fewest/easy/srpt-", ["sjf/fewest/easy/srpt-area"]),
        ("gpuyard simulate demo --scheduler=sjf/bes", ["sjf/best"]),  # bash breaks words at =
        ("gpuyard compare demo --scheduler learned:meta-s", ["meta-six"]),  # … and at :
        ("gpuyard compare demo --scheduler 'learned:meta-s", ["learned:meta-six"]),  # … but not in quotes
        ("gpuyard compare demo --scheduler mil", ["milp"]),
        ("gpuyard simulate demo --ordering multi", ["multifactor"]),
        ("gpuyard simulate demo --backfill con", ["conservative"]),
        ("gpuyard simulate demo --metric utili", ["utilization", "utilization_drained", "utilization_flops"]),
        ("gpuyard simulate demo --metric wait.p9", ["wait.p95", "wait.p99"]),
        ("gpuyard simulate demo --cluster dgx", ["dgx-a100-16"]),
        ("gpuyard simulate demo --by par", ["partition"]),
        ("gpuyard simulate demo -f js", ["json"]),
        ("gpuyard simulate demo --apply burst:sev", ["severity="]),
        ("gpuyard whatif log.swf --change sp", ["split"]),
        ("gpuyard size log.swf --p", ["--p95", "--partition", "--preemptible"]),
        ("gpuyard simulate family:shape=bursty,int", ["bursty,intensity="]),
        ("gpuyard simulate dataset:kth", ["kth-sp2"]),
        ("gpuyard trace fetch nasa", ["nasa-ipsc"]),
        ("gpuyard list polic", ["policies"]),
        ("gpuyard show conserv", ["conservative"]),
        ("gpuyard train PickH", ["PickHost"]),
        ("gpuyard run rob", ["robustness"]),
        ("gpuyard completion fi", ["fish"]),
        ("gpuyard node st", ["start", "stop", "status"]),
        ("gpuyard node start --scheduler sjf/fewest/ea", ["sjf/fewest/easy"]),
        ("gpuyard submit --gpu", ["--gpus", "--gpu-memory"]),
        ("gpuyard submit --signal US", ["USR1", "USR2"]),
        ("gpuyard nonsense x", []),
        ("gpuyard simulate demo --seed ", []),
    ],
)
def test_what_could_follow(line: str, offered: list[str]):
    assert bash(line) == offered


def test_words_and_files_and_words_that_go_on(tmp_path: Path):
    assert flags("gpuyard simulate ") == "files"
    assert flags("gpuyard list ") == ""
    assert flags("gpuyard simulate demo --scheduler sjf/") == "goes-on"
    mine = tmp_path / "mine.py"
    mine.write_text("raise SystemExit\ndef rule(jobs, j, now): return 0\ndef _own(): ...\nclass Clever: ...\n")
    assert bash(f"gpuyard simulate demo --ordering {mine}:") == ["rule", "Clever"]
    assert bash(f"gpuyard compare demo --scheduler {mine}:Cl") == ["Clever"]


def test_every_parameter_is_completed_or_free():
    def commands(command: object) -> Iterator[object]:
        inner = getattr(command, "commands", None)
        for each in inner.values() if inner else []:
            yield from commands(each)
        if not inner:
            yield command

    parameters = {each.name for command in commands(command()) for each in command.params if not getattr(each, "is_flag", False)}  # type: ignore[attr-defined]
    assert parameters - set(VALUES) - FREE == set(), "say in VALUES of cli/completion/words.py what it may be"


def test_the_names_are_those_of_the_registries():
    spec = importlib.util.spec_from_file_location("completion_page", ROOT / "docs" / "pages" / "completion.py")
    assert spec is not None and spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    assert FILE.read_text(encoding="utf-8") == page.page(), "run python docs/pages/completion.py"


@pytest.mark.parametrize(
    ("line", "words", "current", "quoted"),
    [
        ("a b", ["a"], "b", False), ("a  b ", ["a", "b"], "", False), ("a 'b c", ["a"], "b c", True),
        ('a "b" c\\ d', ["a", "b"], "c d", False),
        ("", [], "", False), ("a ''", ["a"], "", False),
    ],
)  # fmt: skip
def test_lines_are_split_as_a_shell_does(line: str, words: list[str], current: str, quoted: bool):
    assert split(line) == (words, current, quoted)


def test_no_outcome_disturbs_the_shell(cli):
    assert cli("__complete") == (1, "", "")
    assert cli("__complete", "tcsh", "x") == (1, "", "")
    assert cli("__complete", "bash", "gpuyard simulate demo --ordering /absent/mine.py:", BREAKS) == (0, "goes-on\n", "")


def test_nothing_heavy_is_imported():
    code = (
        "import sys; from gpuyard.cli.main import run; run(['__complete', 'zsh', 'simulate', 'demo', '--scheduler', 's']);"
        "assert not {'numpy', 'numba', 'polars', 'rich'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "sjf\tshortest job first" in done.stdout


@pytest.mark.parametrize("shell", WHERE)
def test_the_script_is_printed(cli, shell: str):
    assert cli("completion", shell) == (0, (SCRIPTS / f"gpuyard.{shell}").read_text(), "")


def test_an_unknown_shell(cli):
    code, out, err = cli("completion", "tcsh")
    assert (code, out) == (2, "")
    assert "unknown shell 'tcsh'" in err


# ── real shells ──

STARTS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
LOADS = {
    "bash": "eval \"$(gpuyard completion bash)\"",
    "zsh": "autoload -U compinit; compinit -u -D; eval \"$(gpuyard completion zsh)\"",
    "fish": "gpuyard completion fish | source",
}  # fmt: skip


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, shell: str, folder: Path) -> None:
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            own = {"PATH": f"{folder}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(folder)}
            os.execvpe(STARTS[shell][0], STARTS[shell], os.environ | own)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.file, text.encode())

    def wait(self, text: str, seconds: float = 30.0) -> None:
        """Read until a text is seen from now on."""
        begin, end = len(self.seen), time.monotonic() + seconds
        while text not in self.seen[begin:]:
            ready, _, _ = select.select([self.file], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{text!r} was not shown: {self.seen[begin:]!r}"
            self.seen += os.read(self.file, 65536).decode(errors="replace")

    def close(self) -> None:
        os.close(self.file)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


@pytest.mark.parametrize("shell", STARTS)
def test_a_real_shell_completes(shell: str, tmp_path: Path):
    """The tabulator completes an option, a scheduler, a checkpoint with a colon and a file, and the command runs."""
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    program = tmp_path / "gpuyard"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpuyard "$@"\n')
    program.chmod(0o755)
    (tmp_path / "strange-log.swf").write_text("")
    terminal = Terminal(shell, tmp_path)
    try:
        terminal.type(f"{LOADS[shell]}; echo rea''dy\n")
        terminal.wait("ready")
        terminal.type("echo BEGIN; gpuyard simulate stran\t")
        terminal.wait("strange-log.swf")
        terminal.type(" --sched\t")
        terminal.wait("--scheduler")
        terminal.type("learned:meta-s\t")
        terminal.wait("ix")
        terminal.type(" --metric throughput_\t")
        terminal.wait("drained")
        terminal.type(" --ordering multif\t")
        terminal.wait("actor")
        terminal.type("\x15echo done\n")
        terminal.wait("done")
    finally:
        terminal.close()
