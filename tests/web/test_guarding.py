"""Who may ask: names of hosts, tokens, cookies, headers, and what comes from other pages."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator

import pytest

from gpuyard.web.app import listen
from gpuyard.web.guarding import MOST_BODY, Access
from support.dashboards import TOKEN, ManyJobs, TriedDashboard

ACT = {"action": "hold", "number": 1}


@pytest.fixture(scope="module")
def source() -> ManyJobs:
    return ManyJobs(running=2, waiting=2)


@pytest.fixture(scope="module")
def guarded(source: ManyJobs) -> Iterator[TriedDashboard]:
    """A dashboard with a token, in which jobs may be acted on."""
    served = TriedDashboard(source, token=TOKEN, actions=True)
    yield served
    served.stop()


@pytest.fixture(scope="module")
def cookie(guarded: TriedDashboard) -> str:
    status, _, headers = guarded.ask("/api/login", method="POST", body={"token": TOKEN})
    assert status == 200
    given = headers["set-cookie"]
    assert "HttpOnly" in given and "SameSite=strict" in given and TOKEN not in given
    return str(given.partition(";")[0])


def test_every_answer_keeps_a_browser_safe(guarded: TriedDashboard):
    for path in ("/", "/static/app.css", "/api/about", "/api/live", "/nowhere"):
        _, _, headers = guarded.ask(path)
        policy = headers["content-security-policy"]
        assert "unsafe" not in policy and "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::2]"])
def test_a_name_that_is_not_ours_is_refused(guarded: TriedDashboard, host: str):
    """A page of a stranger whose name points here (DNS rebinding)."""
    assert guarded.ask("/api/about", headers={"Host": host})[0] == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"])
def test_our_own_names_are_known(guarded: TriedDashboard, host: str):
    assert guarded.ask("/api/about", headers={"Host": f"{host}:{guarded.port}"})[0] == 200


def test_beyond_this_machine_addresses_are_known_and_names_only_if_they_are_ours():
    access = Access.at("0.0.0.0", TOKEN, ("gpu-box",))
    assert access.knows("192.168.1.7:8460") and access.knows("gpu-box:8460") and access.knows("[fe80::1]:8460")
    assert not access.knows("evil.example:8460") and not access.knows("")


def test_nothing_is_told_without_the_token(guarded: TriedDashboard, cookie: str):
    for path in ("/api/live", "/api/live/jobs", "/api/live/events", "/api/results", "/api/comparisons", "/api/openapi.json"):
        assert guarded.ask(path)[0] == 401
        assert guarded.ask(path, headers={"Authorization": "Bearer wrong"})[0] == 401
        assert guarded.ask(path, headers={"Cookie": "gpuyard-1=x; =; \x7f"})[0] == 401
    assert guarded.get("/api/about")["admitted"] is False
    assert guarded.get("/api/live", Authorization=f"Bearer {TOKEN}")["title"]
    assert guarded.get("/api/live", Cookie=cookie)["title"]
    assert guarded.ask("/api/login", method="POST", body={"token": "wrong"})[0] == 403


def test_a_cookie_outlives_a_restart(guarded: TriedDashboard, cookie: str):
    guarded.stop()
    guarded.start()
    assert guarded.get("/api/about", Cookie=cookie)["admitted"]


def test_what_changes_something_comes_from_our_own_pages(guarded: TriedDashboard, cookie: str, source: ManyJobs):
    """What a form or a script of another page can send is not enough, even with the cookie."""

    def status(**headers: str) -> int:
        return guarded.ask("/api/live/actions", method="POST", body=ACT, headers={"Cookie": cookie, **headers})[0]

    before = list(source.acted)
    connection = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=10)
    connection.request("POST", "/api/live/actions", '{"action":"hold","number":1}', {"Cookie": cookie, "content-type": "application/json"})
    assert connection.getresponse().status == 403  # without the header
    connection.close()
    assert status(**{"content-type": "text/plain"}) == 415
    assert status(Origin="http://evil.example") == 403
    assert status(Origin="null") == 403
    assert guarded.ask("/api/live/actions", method="POST", body=ACT)[0] == 401
    assert source.acted == before
    assert status(Origin=f"http://127.0.0.1:{guarded.port}") == 200
    assert source.acted == [*before, ("hold", 1)]


def test_no_answer_waits_for_the_acknowledgement_of_its_head():
    """Connections inherit from the listener that they send at once; 40 ms of each request otherwise."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_long_body_is_refused(guarded: TriedDashboard):
    assert guarded.ask("/api/login", method="POST", body={"token": "x" * MOST_BODY})[0] == 413


def test_without_leave_nothing_is_changed_and_no_output_is_shown(source: ManyJobs):
    served = TriedDashboard(ManyJobs(running=1))
    try:
        served.get("/api/live")
        status, said, _ = served.ask("/api/live/actions", method="POST", body=ACT)
        assert status == 403 and "--allow-actions" in said["error"]
        assert served.ask("/api/live/jobs/1/output")[0] == 403
    finally:
        served.stop()
