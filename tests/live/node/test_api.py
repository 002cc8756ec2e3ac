"""The socket serves its owner and nobody else, and what one client does harms no other."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from gpuyard.live import clients
from gpuyard.live.node.api import LONGEST
from gpuyard.live.node.client import NodeClient
from gpuyard.live.node.jobs import Submission
from gpuyard.live.node.running.shim import descendants
from support.nodes import TriedNode, until

OTHER = 65_534  # a user who is not us


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TriedNode]:
    """A node that the tests of this file share."""
    node = TriedNode(tmp_path_factory.mktemp("api") / "node").start()
    yield node
    assert "Traceback" not in node.close()


@pytest.fixture
def connect(shared: TriedNode) -> Iterator[Callable[[], socket.socket]]:
    """Connect to the node as a stranger's program might."""
    with ExitStack() as stack:

        def made() -> socket.socket:
            channel = stack.enter_context(socket.socket(socket.AF_UNIX))
            channel.connect(str(shared.folder / "node.sock"))
            channel.settimeout(20)
            return channel

        yield made


def answer(channel: socket.socket) -> Any:
    data = b""
    while not data.endswith(b"\n"):
        piece = channel.recv(1 << 20)
        if not piece:
            return None
        data += piece
    return json.loads(data)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"hello", "message is not JSON"),
        (b"\xff\xfe\x00", "message is not JSON"),
        (b"[" * 10_000, "message is not JSON"),
        (b"[1]", "not a JSON object"),
        (b"{}", "verb"),
        (b'{"verb": "explode"}', "unknown verb"),
        (b'{"verb": ["submit"]}', "verb"),
        (b'{"verb": "submit"}', "no command"),
        (b'{"verb": "submit", "job": "rm -rf /"}', "submission"),
        (b'{"verb": "submit", "job": {"command": ["a"], "env": {"A": null}}}', "env"),
        (b'{"verb": "submit", "job": {"command": ["a"]}, "token": 3}', "token"),
        (b'{"verb": "cancel", "ids": ["1; DROP TABLE jobs"]}', "ids"),
        (b'{"verb": "cancel", "ids": [-1]}', "ids"),
        (b'{"verb": "cancel", "ids": [1e400]}', "ids"),
        (b'{"verb": "why", "id": 99999999}', "there is no job"),
        (b'{"verb": "wait", "ids": [], "timeout": NaN}', "timeout"),
        (b'{"verb": "history", "limit": 1e9}', "limit"),
    ],
)
def test_garbage_is_refused_and_the_connection_goes_on(connect, line, told):
    channel = connect()
    channel.sendall(line + b"\n")
    found = answer(channel)
    assert found["ok"] is False
    assert told in found["error"]
    assert "\n" not in found["error"]
    channel.sendall(b'{"verb": "status"}\n')
    assert answer(channel)["ok"] is True


def test_an_oversized_request_is_refused(connect, shared):
    channel = connect()
    with suppress(BrokenPipeError):
        for _ in range(2 + LONGEST // 1_000_000):
            channel.sendall(b"x" * 1_000_000)
    assert answer(channel)["error"] == f"a request is longer than {LONGEST:,} bytes"
    assert shared.answers()


def test_many_requests_at_once_are_answered_in_order(connect):
    channel = connect()
    channel.sendall(b'{"verb": "status"}\n{"verb": "nothing"}\n' * 50)
    data = b""
    while data.count(b"\n") < 100:
        data += channel.recv(1 << 20)
    assert [json.loads(line)["ok"] for line in data.splitlines()] == [True, False] * 50


def test_a_client_that_reads_nothing_costs_no_memory(connect, shared):
    """It asks a thousand times for what takes a megabyte each; the others are served meanwhile."""
    shared.client.submit(Submission(("true",), name="x" * 190, array=tuple(range(1500)), held=True))
    before = memory(shared.pid)
    channel = connect()
    channel.sendall(b'{"verb": "jobs"}\n' * 1000)
    for _ in range(20):
        assert shared.answers()
    assert memory(shared.pid) - before < 60_000_000
    channel.close()
    shared.client.call("cancel", ids=[job.id for job in shared.client.jobs()])


def memory(pid: int) -> int:
    """Return the bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_half_a_request_holds_nobody_up(connect, shared):
    channel = connect()
    channel.sendall(b'{"verb": "sta')
    assert shared.ends(shared.shell("true"))[0].exit_code == 0
    channel.sendall(b'tus"}\n')
    assert answer(channel)["ok"] is True


def test_idle_clients_make_room_and_busy_ones_do_not(connect, shared):
    idle = [connect() for _ in range(clients.MOST_CONNECTIONS)]
    until(shared.answers)
    number = shared.shell("while ! test -e $FOLDER/go; do sleep 0.02; done")
    shared.client.close()
    waiting = [connect() for _ in range(clients.MOST_CONNECTIONS)]
    for channel in waiting:
        channel.sendall(json.dumps({"verb": "wait", "ids": [number]}).encode() + b"\n")
    found = until(lambda: (said := answer(connect())) and said)
    assert found["error"] == f"{clients.MOST_CONNECTIONS} clients are connected; no more are served at once"
    (shared.folder / "go").touch()
    assert answer(waiting[0])["jobs"][0]["state"] == "DONE"
    (shared.folder / "go").unlink()
    for channel in idle + waiting:
        channel.close()
    until(shared.answers)


def test_files_are_the_owners_alone(shared):
    shared.ends(shared.shell("umask; touch $FOLDER/made", name="../../etc/passwd"))
    seen = {path: stat.S_IMODE(path.lstat().st_mode) for path in (shared.folder, *shared.folder.rglob("*")) if path.name != "made"}
    assert {path: mode for path, mode in seen.items() if mode & 0o077} == {}
    assert stat.S_IMODE((shared.folder / "made").stat().st_mode) & 0o600 == 0o600
    assert (shared.folder / "node.sock") in seen
    assert all(each.name.isdigit() for each in (shared.folder / "jobs").iterdir())


def test_a_node_opens_no_port(shared):
    """Neither the daemon nor what it has started has a socket of the internet."""
    number = shared.shell("sleep 30")
    until(lambda: shared.state(number) == "RUNNING")
    internet = set()
    for name in ("tcp", "tcp6", "udp", "udp6"):
        with suppress(FileNotFoundError):  # IPv6 may be switched off
            internet |= {line.split()[9] for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]}
    with socket.create_server(("127.0.0.1", 0)):  # the harness sees what it claims to see
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        assert _sockets({os.getpid()}) & {line.split()[9] for line in lines}
    mine = _sockets({shared.pid} | descendants({shared.pid}))
    assert mine
    assert mine & internet == set()
    shared.client.call("cancel", ids=[number])
    shared.ends(number)


def _sockets(pids):
    """Return the inodes of the sockets that processes have open."""
    found = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(file.readlink())
                found |= {target[8:-1]} if target.startswith("socket:[") else set()
    return found


@pytest.mark.skipif(bool(os.geteuid()), reason="only root can become another user: the refusal of others is NOT tested")
def test_another_user_is_refused(shared, tmp_path):
    """Even where the socket itself would let them in."""
    ask = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.makefile().readline())"
    setpriv = shutil.which("setpriv")
    assert setpriv is not None, "setpriv is part of util-linux"
    command = [setpriv, f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", "/usr/bin/env", "python3", "-c", ask]

    def asked(path: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)

    assert "PermissionError" in asked(shared.folder / "node.sock").stderr
    mine = shared.folder / "node.sock"
    opened = [path for path in (mine, *mine.parents) if path.stat().st_uid == 0 and path != Path("/")]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in opened}
    try:
        for path in opened:
            path.chmod(modes[path] | 0o777)
        told = asked(mine)
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    assert "this node belongs to another user" in told.stdout, told.stderr


def test_a_folder_of_another_user_is_refused(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    os.chown(folder, OTHER, OTHER)
    command = [sys.executable, "-m", "gpuyard", "node", "start", "--scheduler", "plain", "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"gpuyard: error: {folder}: belongs to another user")


def test_a_folder_that_others_could_enter_is_closed(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    node = TriedNode(folder).start()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    node.close()


def test_a_long_path_is_no_hindrance(tmp_path):
    """An address of a socket holds 107 bytes."""
    node = TriedNode(tmp_path / ("long" * 40) / "node").start()
    with NodeClient(node.folder) as client:
        assert client.call("status")["folder"] == str(node.folder)
    node.close()
