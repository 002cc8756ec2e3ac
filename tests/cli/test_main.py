"""Entry point: version, help without heavy imports, errors in one line, pipes and interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import gpuyard
from gpuyard.cli.verbs import app
from support.complaints import complaints

COMMAND = [sys.executable, "-m", "gpuyard"]
VERBS = [command.name for command in app.registered_commands]


def test_version(cli):
    assert cli("--version") == (0, f"gpuyard {gpuyard.__version__}\n", "")


def test_help_imports_nothing_heavy():
    """All helps in one process: nothing is loaded by the first, nor by the next …"""
    heavy = ("numpy", "numba", "polars", "matplotlib", "llvmlite")
    code = f"""
import sys
from gpuyard.cli.main import run
for arguments in {[["--help"], *([verb, "--help"] for verb in VERBS)]}:
    run(arguments)
    loaded = [name for name in {heavy} if name in sys.modules]
    assert not loaded, (arguments, loaded)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: gpuyard") == 1 + len(VERBS)


def test_no_argument_shows_the_help(cli):
    assert cli().code == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["fly"], "no such command 'fly'; hint: gpuyard --help"),
        (["simulte"], "no such command 'simulte'; hint: did you mean gpuyard simulate?"),
        (["trace", "inof"], "no such command 'inof'; hint: did you mean gpuyard trace info?"),
        (["sim", "demo"], "no such command 'sim'; hint: did you mean gpuyard simulate?"),
        (["help"], "no such command 'help'; hint: did you mean gpuyard --help?"),
        (["log.swf.gz"], "no such command 'log.swf.gz'; hint: did you mean gpuyard compare log.swf.gz?"),
        (["simulate"], "missing argument WORKLOAD; hint: e.g. gpuyard simulate demo --scheduler sjf/fewest/easy"),
        (["simulate", "demo", "--nope"], "no such option: --nope; hint: gpuyard simulate --help"),
        (["simulate", "demo", "--sede", "1"], "no such option: --sede; hint: did you mean --seed?"),
        (["simulate", "demo", "--seeds", "1"], "no such option: --seeds; hint: did you mean --seed?"),
        (
            ["compare", "demo", "--by", "user"],
            "no such option: --by; hint: gpuyard simulate has it; --report shows who gains and who loses, by user, partition and size",
        ),
        (["show", "polices"], "unknown name 'polices'; hint: did you mean gpuyard list policies?"),
        (["simulate", "demo", "--policy", "sjf"], "no such option: --policy; hint: did you mean --scheduler?"),
        (["simulate", "demo", "sjf/best"], "too many arguments: sjf/best; hint: did you mean --scheduler sjf/best?"),
        (["simulate", "demo", "16x8:a100"], "too many arguments: 16x8:a100; hint: did you mean --cluster 16x8:a100?"),
        (["simulate", "demo", "--cluster"], "option '--cluster' requires an argument; hint: gpuyard --help"),
        (["simulate", "demo", "--seed", "x"], "--seed: not a whole number; hint: gpuyard simulate --help"),
        (["simulate", "demo", "-f", "xml"], "-f: 'xml' is not one of 'table', 'json', 'csv', 'md'; hint: gpuyard simulate --help"),
        (["compare", "demo", "--seeds", "1.5"], "--seeds: not a whole number; hint: gpuyard compare --help"),
    ],
)
def test_wrong_usage_is_a_line_and_a_hint_and_code_2(cli, arguments, told):
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert complaints(err) == [told]


def test_an_unexpected_error_is_one_line_and_called_a_bug(cli, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("gpuyard.traces.recipes.reading.load_workload", broken)
    code, out, err = cli("simulate", "demo", "--cluster", "node8")
    assert (code, out) == (1, "")
    assert err == ("gpuyard: error: RuntimeError: two lines; this is a bug in gpuyard\ngpuyard: hint: add -v for the traceback\n")


@pytest.mark.parametrize("arguments", [["-v", "simulate", "dmo"], ["simulate", "dmo", "-v"], ["simulate", "--verbose", "dmo"]])
def test_verbose_shows_the_traceback(capsys, arguments):
    from gpuyard.cli.main import run

    assert run(arguments) == 2
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-2:] == ["gpuyard: error: unknown workload 'dmo'", "gpuyard: hint: did you mean 'demo'?"]


def test_a_reader_that_leaves_early_is_no_error():
    writer = subprocess.Popen([*COMMAND, "list", "metrics"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    assert writer.stderr.read() == b""
    assert writer.wait() == 0
    writer.stderr.close()


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("verb", ["simulate", "compare"])
def test_an_interrupt_ends_it_at_once(verb):
    """In the middle of a simulation that would take minutes."""
    arguments = [verb, "demo:jobs=100k,load=1.9", "--scheduler", "fcfs/fewest/conservative"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job, as these tests may be, ignores it
    program = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    try:
        assert program.stderr is not None
        assert "no --cluster" in program.stderr.readline()  # it is under way
        time.sleep(0.5)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
    finally:
        program.kill()
    assert (program.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "gpuyard: interrupted"
    assert "Traceback" not in err


def test_names_cannot_drive_the_terminal(cli, tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit,runtime,user\n0,10,\x1b[31mred\n")
    code, out, _ = cli("simulate", trace, "--cluster", "node8", "--by", "user")
    assert code == 0
    assert "\x1b" not in out


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_utf8_gets_a_table_all_the_same(encoding):
    done = subprocess.run(
        [*COMMAND, "list", "orderings"], capture_output=True, check=False, env=os.environ | {"PYTHONIOENCODING": encoding}
    )
    assert done.returncode == 0
    assert b"fcfs" in done.stdout
