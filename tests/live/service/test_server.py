"""The service decides as a simulation does, admits those who may, and what one client does harms no other."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.live.state.test_file import busy

from gpuyard import Simulation, simulate
from gpuyard.errors import GpuyardError
from gpuyard.live.deciding import Asked, outlook, outlook_records
from gpuyard.live.service.http import LEAST_TOKEN, MOST_HEAD, listen_on, read_token
from gpuyard.live.service.server import LONGEST, listen_at_path
from gpuyard.live.state.file import SavedSnapshot, snapshot_bytes
from gpuyard.model.decision import Action, Decision, Part
from gpuyard.policies import parse_scheduler
from gpuyard.testing.strategies import random_case
from support.services import TriedService

SCHEDULER = "sjf/fewest/easy"  # what the service has unless told otherwise
OTHER = 65_534  # a user who is not us


def plain(saved):
    return json.loads(snapshot_bytes(saved))


def decisions_of(answer, snapshot):
    """The decisions of an answer, as a simulation takes them."""
    nodes = {name: k for k, name in enumerate(snapshot.cluster.nodes.names)}
    index = dict(zip(map(str, snapshot.jobs.table["id"].tolist()), snapshot.jobs.table["index"].tolist(), strict=True))
    return [
        Decision(
            index[each["job"]],
            Action(each["action"]),
            tuple(Part(nodes[part["node"]], part["gpus"], tuple(part["devices"])) for part in each["parts"]),
            each["reason"],
        )
        for each in answer["decisions"]
    ]


# ── one truth ──


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("door", ["local", "remote"])
def test_it_decides_as_a_simulation_at_every_instant(door, number, request):
    service, case, scheduler = request.getfixturevalue(door), random_case(number), parse_scheduler(SCHEDULER)
    sim = Simulation(case.workload, case.cluster, rules=case.rules)
    while (snapshot := sim.advance()) is not None:
        answer = service.ask("decide", snapshot=plain(SavedSnapshot(snapshot)))
        assert answer["ok"], answer
        sim.apply(decisions_of(answer, snapshot))
    expected = simulate(case.workload, case.cluster, scheduler, rules=case.rules)
    for name in ("start", "end", "node", "status"):
        np.testing.assert_array_equal(sim.result().table[name], expected.table[name], err_msg=name)


def test_it_says_what_the_command_says(local):
    answer = local.ask("decide", snapshot=plain(busy()), explain=True)
    decisions, order, _ = Asked(parse_scheduler(SCHEDULER)).decide(busy())
    assert [each["job"] for each in answer["decisions"]] == [busy().name(busy().snapshot.rows()[each.job]) for each in decisions]
    assert answer["order"] == [busy().name(row) for row in order]
    assert answer["jobs"] == outlook_records(busy(), outlook(busy(), parse_scheduler(SCHEDULER)))
    assert answer["ineligible"] == {"99": "it is held"}


# ── hostile clients ──


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"hello", "request: not JSON"),
        (b"\xff\xfe\x00", "request: not JSON"),
        (b"[" * 600_000, "too many"),
        (b"[" * 10_000, "request: not JSON"),
        (b"[1]", "is not a table"),
        (b"{}", "verb is missing"),
        (b'{"verb": "explode"}', "unknown verb"),
        (b'{"verb": "status", "x": 1}', "unknown key 'x'"),
        (b'{"verb": "status", "verb": "status"}', "given twice"),
        (b'{"verb": "decide"}', "no hosts are registered"),
        (b'{"verb": "decide", "snapshot": "/etc/passwd"}', "is not a table"),
        (b'{"verb": "decide", "snapshot": {}, "explain": 1}', "explain = 1 is not true or false"),
        (b'{"verb": "decide", "snapshot": {}}', "is not a snapshot"),
        (b'{"verb": "decide", "snapshot": {"format": NaN}}', "NaN is not a number"),
    ],
)
def test_garbage_is_refused_and_the_connection_goes_on(local, line, told):
    with local.connect() as client:
        client.send(line + b"\n")
        found = client.line()
        assert found["ok"] is False
        assert told in found["error"]
        assert "\n" not in found["error"]
        assert client.ask("status")["ok"] is True


def test_an_oversized_request_is_refused_and_others_are_served(local):
    with local.connect() as client, local.connect() as other:
        with suppress(BrokenPipeError, ConnectionResetError):
            for k in range(2 + LONGEST // 1_000_000):
                client.send(b"x" * 1_000_000)
                assert k % 4 or other.ask("status")["ok"]
        with suppress(ConnectionResetError):
            assert client.line()["error"] == f"a request is longer than {LONGEST:,} bytes"
        assert other.ask("status")["ok"]


def test_many_large_requests_at_once_are_refused(local):
    """Each within the limit, but memory has one too; the connections of others stay."""
    clients = [local.connect() for _ in range(6)]
    with local.connect() as other:
        for client in clients:
            with suppress(BrokenPipeError, ConnectionResetError):
                client.send(b"x" * (LONGEST - 1000))
        assert other.ask("status")["ok"]
        told = clients[-1].line()
        assert told["error"] == "too many large requests at once"
        for client in clients:
            client.channel.close()
        assert other.ask("status")["ok"]


def test_half_a_request_holds_nobody_up(local):
    with local.connect() as client:
        client.send(b'{"verb": "sta')
        assert local.ask("status")["ok"]
        client.send(b'tus"}\n')
        assert client.line()["ok"]


def test_many_requests_at_once_are_answered_in_order(local):
    with local.connect() as client:
        client.send(b'{"verb": "status"}\n{"verb": "nothing"}\n' * 500)
        data = b""
        while data.count(b"\n") < 1000:
            data += client.channel.recv(1 << 20)
        assert [json.loads(line)["ok"] for line in data.splitlines()] == [True, False] * 500


@pytest.mark.slow
def test_a_slow_client_is_dropped(local, remote):
    """Ten seconds after the beginning of a request that has no end."""
    with local.connect() as client, remote.connect() as other:
        client.send(b'{"verb": ')
        other.send(b"POST /status HT")
        assert client.ended()
        assert other.ended()


def test_a_decision_that_takes_too_long_is_ended(tmp_path):
    (tmp_path / "endless.py").write_text("class Endless:\n    def decide(self, snapshot):\n        while True:\n            pass\n")
    service = TriedService(tmp_path, "--scheduler", f"{tmp_path}/endless.py:Endless", "--patience", "200ms")
    with service.connect() as client:
        for _ in range(2):
            assert client.ask("decide", snapshot=plain(busy()))["error"] == "the request took too long"
            assert client.ask("status")["ok"]
    assert "Traceback" not in service.close()


# ── HTTP ──


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/status", {}, 401),
        ("/status", {"Authorization": "Bearer "}, 401),
        ("/status", {"Authorization": "Bearer wrong"}, 401),
        ("/status", {"Authorization": "Basic TOKEN"}, 401),
        ("/wrong/status", {}, 401),
        ("/PART/status", {}, 401),
        ("/nothing", {}, 401),  # who has no token does not even learn which verbs there are
        ("/status", {"Authorization": "Bearer TOKEN"}, 200),
        ("/status?x=1", {"authorization": "bearer TOKEN"}, 200),
        ("/TOKEN/status", {}, 200),
        ("/nothing", {"Authorization": "Bearer TOKEN"}, 400),
        ("/a/b", {"Authorization": "Bearer TOKEN"}, 404),
        ("/", {"Authorization": "Bearer TOKEN"}, 404),
        ("/status", {"Authorization": "Bearer TOKEN", "Transfer-Encoding": "chunked"}, 501),
    ],
)
def test_no_access_without_the_token(remote, path, headers, status):
    told = {name: value.replace("TOKEN", remote.token) for name, value in headers.items()}
    found, answer = remote.fetch(path.replace("TOKEN", remote.token).replace("PART", remote.token[:-1]), headers=told)
    assert (found, answer["ok"]) == (status, status == 200)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET status HTTP/1.1\r\n\r\n", 400),
        (b"GET /status HTTP/9\r\n\r\n", 400),
        (b"DELETE /TOKEN/status HTTP/1.1\r\n\r\n", 405),
        (b"POST /TOKEN/status HTTP/1.1\r\nbroken\r\n\r\n", 400),
        (b"POST /TOKEN/status HTTP/1.1\r\nContent-Length : 2\r\n\r\n{}", 400),
        (b"POST /TOKEN/status HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (b"POST /TOKEN/status HTTP/1.1\r\nContent-Length: -1\r\n\r\n{}", 400),
        (b"POST /TOKEN/status HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n{}", 413),
        (f"POST /TOKEN/status HTTP/1.1\r\nContent-Length: {LONGEST + 1}\r\n\r\n".encode(), 413),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * MOST_HEAD, 431),
    ],
)
def test_what_is_not_http_is_refused_and_the_connection_ends(remote, data, status):
    with remote.connect() as client:
        client.send(data.replace(b"TOKEN", remote.token.encode()))
        found = b""
        with suppress(ConnectionResetError):
            while piece := client.channel.recv(1 << 16):
                found += piece
        assert found.startswith(f"HTTP/1.1 {status} ".encode())
        assert json.loads(found.rpartition(b"\r\n\r\n")[2])["ok"] is False
    assert remote.ask("status")["ok"]


def test_a_connection_carries_several_requests_and_ends_when_told(remote):
    one = f"GET /{remote.token}/status HTTP/1.1\r\n\r\n".encode()
    with remote.connect() as client:
        client.send(one * 3 + one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + one)
        found = b""
        with suppress(ConnectionResetError):
            while piece := client.channel.recv(1 << 16):
                found += piece
    assert found.count(b"HTTP/1.1 200 OK") == 4


# ── doors ──


def test_only_the_owner_may_open_the_socket(local):
    assert stat.S_IMODE(local.socket.stat().st_mode) == 0o600


@pytest.mark.skipif(bool(os.geteuid()), reason="only root can become another user: the refusal of others is NOT tested")
def test_another_user_is_refused(local):
    """Even where the socket itself would let them in."""
    ask = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.makefile().readline())"
    setpriv = shutil.which("setpriv")
    assert setpriv is not None, "setpriv is part of util-linux"
    command = [setpriv, f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", "/usr/bin/env", "python3", "-c", ask, str(local.socket)]

    def asked():
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert "PermissionError" in asked().stderr
    opened = [path for path in (local.socket, *local.socket.parents) if path.stat().st_uid == 0 and path != Path("/")]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in opened}
    try:
        for path in opened:
            path.chmod(modes[path] | 0o777)
        told = asked()
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    assert "this service belongs to another user" in told.stdout, told.stderr


def test_a_token_is_made_and_must_be_the_owners_alone(tmp_path):
    path = tmp_path / "token"
    token = read_token(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) == 64
    assert read_token(path) == token
    path.chmod(0o640)
    with pytest.raises(GpuyardError, match="others may read the token"):
        read_token(path)
    path.chmod(0o600)
    path.write_text("x" * (LEAST_TOKEN - 1))
    with pytest.raises(GpuyardError, match="no token of at least 16"):
        read_token(path)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org", "10.0.0.1"])
def test_it_listens_on_this_machine_alone(host):
    with pytest.raises(GpuyardError, match="is not an address of this machine alone"):
        listen_on(host, 0)


def test_a_file_or_a_socket_in_use_is_not_replaced_and_a_dead_one_is(tmp_path, local):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(GpuyardError, match="is not a socket"):
        listen_at_path(tmp_path / "file")
    with pytest.raises(GpuyardError, match="another service answers there"):
        listen_at_path(local.socket)
    with pytest.raises(GpuyardError, match="cannot be listened on"):
        listen_at_path(tmp_path / "none" / "s")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))
    listen_at_path(tmp_path / "s").close()
    assert (tmp_path / "file").read_text() == "precious"
