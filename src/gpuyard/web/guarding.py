"""Decides who may ask, and what a browser may do with the answer.

Every request names a host that is ours, so that a stranger's page cannot reach us through a name of its own (DNS rebinding). The data needs
the token where there is one: as `Authorization: Bearer TOKEN`, or as the cookie that a login gives. What changes something needs a header
that no form can send, and comes from our own pages alone.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any

from gpuyard.web.stream import Receive, Send

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
MOST_BODY = 65_536  # bytes of a request
ACTION = "x-gpuyard"  # header of what changes something
LOOPBACK = ("localhost", "127.0.0.1", "::1")
OPEN = ("/api/about", "/api/login")  # what may be asked without the token
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


@dataclass(frozen=True)
class Access:
    """The rules of who may see the dashboard, and under which names it is reached."""

    hosts: frozenset[str]  # names; addresses of the machine are known besides where `any_address`
    token: str = ""  # empty: everybody on this machine may look
    any_address: bool = False
    actions: bool = False  # jobs may be cancelled, held and put on top, with the token

    @classmethod
    def at(cls, host: str, token: str = "", names: tuple[str, ...] = (), *, actions: bool = False) -> Access:
        """Return the access to a server that listens on a host."""
        if host in LOOPBACK:
            return cls(frozenset((*LOOPBACK, *names)), token, actions=actions)
        own = {socket.gethostname(), socket.getfqdn(), host, *names, *LOOPBACK}
        return cls(frozenset(each.lower() for each in own), token, any_address=True, actions=actions)

    def knows(self, given: str) -> bool:
        """Return whether a request may name this host."""
        host = given.lower().rsplit("]", 1)[0].lstrip("[") if given.startswith("[") else given.lower().rsplit(":", 1)[0]
        if host in self.hosts:
            return True
        if not self.any_address:
            return False
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True  # an address cannot be made to point elsewhere, as a name can

    def cookie(self) -> str:
        """Return the value of the cookie that stands for the token; it outlives a restart of the server."""
        return hmac.new(self.token.encode(), b"gpuyard dashboard", hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        """Return whether this is the token."""
        return bool(self.token) and hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    def admits(self, headers: Mapping[str, str], name: str) -> bool:
        """Return whether a request has the token, or needs none."""
        if not self.token:
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.is_token(given.strip()):
            return True
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(name)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode("utf-8", "replace"), self.cookie().encode())


def cookie_name(scope: Scope) -> str:
    """Return the name of the cookie: browsers share cookies between the ports of a host."""
    return f"gpuyard-{(scope.get('server') or ('', 0))[1]}"


class AccessGuard:
    """Stands before the application."""

    def __init__(self, app: App, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or say why not; every answer has the headers that keep a browser safe."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refused(scope, headers)

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                sent = {name for name, _ in message.get("headers", ())}
                more = [] if b"cache-control" in sent else [(b"cache-control", b"no-cache" if _is_asset(scope) else b"no-store")]
                message["headers"] = [*message.get("headers", ()), *_HEADERS, *more]
            await send(message)

        if refused:
            await answer(guarded, *refused)
            return
        body = await _body(scope, receive) if scope["method"] not in ("GET", "HEAD") else b""
        if body is None:
            await answer(guarded, 413, f"a request is longer than {MOST_BODY:,} bytes")
            return
        await self._app(scope, _given(body, receive) if scope["method"] not in ("GET", "HEAD") else receive, guarded)

    def _refused(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return the status and the sentence of a refusal; None: it may go on."""
        host = headers.get("host", "")
        if not self._access.knows(host):
            return 421, "this server does not answer to that name; --name NAME lets it"
        path = scope["path"]
        if path.startswith("/api/") and path not in OPEN and not self._access.admits(headers, cookie_name(scope)):
            return 401, "the token is missing"
        if scope["method"] in ("GET", "HEAD", "OPTIONS", "TRACE"):
            return None
        origin = headers.get("origin")
        if ACTION not in headers or (origin is not None and origin.partition("://")[2].lower() != host.lower()):
            return 403, f"not from our own pages: send the header {ACTION}"
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "send JSON"
        return None


def _is_asset(scope: Scope) -> bool:
    return not scope["path"].startswith("/api/")


async def answer(send: Send, status: int, error: str) -> None:
    """Send a refusal."""
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(scope: Scope, receive: Receive) -> bytes | None:
    """Return the whole body; None: it is too long."""
    data: bytes = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return data
        data += bytes(message.get("body", b""))
        if len(data) > MOST_BODY:
            return None
        if not message.get("more_body"):
            return data


def _given(body: bytes, receive: Receive) -> Receive:
    """Return what gives the body that was read already, and then what follows."""
    told = False

    async def first() -> MutableMapping[str, Any]:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return first
