"""`gpuyard node`: a daemon that is started, asked, drained, stopped and started again, and the unit for systemd."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import stat
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from gpuyard.live.node.client import NodeClient
from gpuyard.live.node.starting import unit_text
from support.complaints import complaints
from support.nodes import TriedNode, until

START = ("node", "start", "--scheduler", "plain", "--cpus", "2")


@pytest.mark.parametrize(
    "arguments",
    [["node", "status"], ["submit", "true"], ["queue"], ["why", "1"], ["node", "stop"], ["node", "drain"], ["history"], ["wait"]],
)
def test_without_a_node_the_hint_says_how_to_start_one(cli, place, arguments):
    code, out, err = cli(*arguments)
    assert (code, out) == (1, "")
    assert complaints(err) == [f"no node runs in {place}; hint: gpuyard node start"]


def test_start_stop_and_start_again(cli, place):
    """Jobs go on while no daemon runs; the next one has the same settings, and takes them back."""
    code, out, err = cli(*START)
    assert (code, out) == (0, "")
    assert err.startswith("gpuyard: node started (process ")
    assert "2 CPU slots (" in err
    assert {stat.S_IMODE(path.stat().st_mode) for path in (place, place / "node.sock", place / "node.db", place / "daemon.log")} == {
        0o700, 0o600,
    }  # fmt: skip
    code, _, err = cli("node", "start")
    assert code == 0
    assert "a node runs already (process " in err
    code, _, err = cli("node", "start", "--cpus", "3")
    assert code == 2
    assert complaints(err)[0].endswith("with other settings; hint: gpuyard node stop, then start again: jobs go on meanwhile")

    number = cli("submit", "--", "sh", "-c", "echo begun; while ! test -e go; do sleep 0.01; done; echo $$", "--cwd").out.strip()
    assert number == "1"
    until(lambda: "begun" in cli("logs", number).out)
    code, _, err = cli("node", "stop")
    assert code == 0
    assert "node stopped" in err
    assert "1 RUNNING: what runs goes on" in err
    assert cli("queue").code == 1
    code, _, err = cli("node", "start")
    assert "scheduler plain" in err
    assert "it has taken back 1 RUNNING" in err
    status = json.loads(cli("node", "status", "-f", "json").out)
    assert (status["slots"], status["scheduler"], status["jobs"]) == (2, "plain", {"RUNNING": 1})
    Path("go").touch()
    assert cli("wait", number) == (0, "", "")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_drain_and_resume(cli, node):
    assert "starts nothing more" in cli("node", "drain").err
    number = cli("submit", "true").out.strip()
    assert "the node is being drained" in cli("why", number).out
    assert "the node is being drained" in cli("node", "status").out
    assert cli("node", "resume").code == 0
    assert cli("wait", number).code == 0


def test_status_and_decisions(cli, node):
    cli("wait", cli("submit", "true").out.strip())
    code, out, _ = cli("node", "status")
    assert code == 0
    assert "CPU slots" in out
    assert "scheduler: plain" in out
    text = cli("node", "status", "--prometheus", "-").out
    assert "# TYPE gpuyard_jobs gauge" in text
    assert cli("node", "status", "--prometheus", "node.prom") == (0, "", "")
    assert Path("node.prom").read_text() == cli("node", "status", "--prometheus", "-").out
    assert complaints(cli("node", "status", "--watch").err) == ["--watch needs a terminal; hint: gpuyard node status -f json tells it once"]
    found = json.loads(cli("node", "decisions", "-n", "1", "-f", "json").out)
    assert [each["action"] for each in found] == ["start"]
    assert "first come, first served" in cli("node", "decisions").out


def test_watch_draws_in_the_place_of_what_it_drew_and_leaves_the_screen_as_it_was(node):
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (12, 60))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "gpuyard", "node", "status", "--watch"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        drawn = b""
        while drawn.count(b"Ctrl-C ends it") < 2:
            drawn += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # on Linux, reading after the end is an error
            while piece := os.read(ours, 65536):
                drawn += piece
    os.close(ours)
    assert process.returncode == 0
    assert drawn.count(b"\x1b[?1049h") == drawn.count(b"\x1b[?1049l") == 1  # the other screen, and back
    for text in (b"scheduler: plain", b"CPU slots", str(node).encode()[:30]):
        assert drawn.count(text) >= 2
    assert b"Traceback" not in drawn


def test_queue_says_that_another_scheduler_took_over(cli, tmp_path, monkeypatch):
    tried = TriedNode(tmp_path / "node")
    monkeypatch.setenv("GPUYARD_NODE", str(tried.folder))
    try:
        tried.start(scheduler="sjff")
        tried.ends(tried.shell("true"))
        said = cli("queue").err
        assert "warning: fcfs/fewest/easy decides in the place of sjff: sjff UnknownNameError: unknown ordering or decider" in said
        assert cli("queue", "-f", "json").out == "[]\n"
    finally:
        assert "Traceback" not in tried.close()


def test_gpus_are_shown_with_who_uses_them(cli, tmp_path, monkeypatch):
    """A node with fake readings: one GPU with a stranger's process, one that has fallen off the bus."""
    gpus = [
        {"index": 0, "uuid": "GPU-a", "name": "NVIDIA H200", "memory": 140.0, "free": 100.0, "utilisation": 0.5, "watts": 300.0,
         "celsius": 55.0, "processes": [{"pid": os.getpid(), "memory": 40.0}]},
        {"index": 1, "uuid": "GPU-b", "name": "NVIDIA H200", "memory": 140.0, "free": 140.0, "lost": "fell off the bus"},
    ]  # fmt: skip
    readings = tmp_path / "gpus.json"
    readings.write_text(json.dumps(gpus))
    tried = TriedNode(tmp_path / "node")
    monkeypatch.setenv("GPUYARD_NODE", str(tried.folder))
    try:
        tried.start(gpus=str(readings))
        out = cli("node", "status").out
        row = next(line.split() for line in out.splitlines() if "foreign" in line and "NVIDIA" in line)
        assert row == ["0", "NVIDIA", "H200", "foreign", "50%", "40.0", "of", "140", "GB", "300", "W", "55", "°C", str(os.getpid())]
        assert "GPU 1: fell off the bus" in out
        number = cli("submit", "--gpus", "1", "--", "true").out.strip()
        assert "processes of others use the GPUs" in cli("why", number).out
        assert f"process {os.getpid()}" in cli("why", number).out
        assert 'gpuyard_gpu_lost{gpu="1",uuid="GPU-b",name="NVIDIA H200"} 1' in cli("node", "status", "--prometheus", "-").out
        rows = json.loads(cli("node", "status", "-f", "json").out)["devices"]
        assert [each["strangers"] for each in rows] == [[os.getpid()], []]
    finally:
        assert "Traceback" not in tried.close()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--scheduler", "sjff"], "unknown ordering or decider 'sjff'; hint: did you mean 'sjf'?"),
        (["--template", "torch"], "--template: not NAME=MODULE,MODULE; hint: e.g. --template torch=torch,numpy"),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(cli, place, words, told):
    code, _, err = cli("node", "start", *words)
    assert code == 2
    assert complaints(err) == [told]
    assert not place.exists()


def test_a_start_that_fails_says_why(cli, place, monkeypatch):
    place.mkdir()
    (place / "node.db").write_text("this is not a database, but long enough to be taken for one" * 10)
    code, _, err = cli("node", "start", "--cpus", "1")
    assert code == 1
    assert "node.db" in complaints(err)[0]
    place.with_name("node").rename(place.with_name("broken"))


def test_in_the_foreground_it_ends_with_a_signal(place):
    program = subprocess.Popen([sys.executable, "-m", "gpuyard", *START, "--foreground"], stderr=subprocess.PIPE, text=True)
    try:
        assert program.stderr is not None
        assert "Ctrl-C stops it" in program.stderr.readline()
        client = NodeClient(place)
        until(lambda: client.call("status")["pid"] == program.pid)
        client.close()
        program.terminate()
        assert program.wait(60) == 0
    finally:
        program.kill()
        program.communicate()


def test_the_unit_lets_jobs_outlive_the_daemon(cli, place):
    code, out, err = cli("node", "unit", "--scheduler", "plain", "--cpus", "2", "--template", "t=json", "--folder", "/tmp/with blank%")
    assert code == 0
    assert "\nKillMode=process\n" in out
    assert "loginctl enable-linger" in err
    line = next(line for line in out.splitlines() if line.startswith("ExecStart="))
    words = shlex.split(line.removeprefix("ExecStart="))
    assert words[0] == sys.executable
    assert words[3:] == ["node", "start", "--foreground", "--folder", "/tmp/with blank%%", "--scheduler", "plain", "--cpus", "2",
                         "--template", "t=json"]  # fmt: skip
    assert '"a\\"b"' in unit_text(['a"b'])


def test_the_daemon_has_nothing_of_the_job_that_started_it(cli, place, monkeypatch):
    """What carries the token of a job is killed with it."""
    monkeypatch.setenv("GPUYARD_TOKEN", "of-a-job")
    cli(*START)
    pid = json.loads(cli("node", "status", "-f", "json").out)["pid"]
    assert b"of-a-job" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert os.getsid(pid) == pid
