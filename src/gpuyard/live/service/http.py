"""HTTP/1.1 as far as the service needs it: POST and GET on loopback, with a token in each request. An answer is a line of JSON.

The token comes as `Authorization: Bearer TOKEN`, or as the first part of the path for clients that cannot send headers. It is checked
before the body is looked at.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.errors import DataError, UsageError
from gpuyard.files import reading, writing
from gpuyard.live.clients import Request
from gpuyard.live.node.api import encode

MOST_HEAD = 16_384  # bytes
LOOPBACK = {"127.0.0.1": socket.AF_INET, "localhost": socket.AF_INET, "::1": socket.AF_INET6}
LEAST_TOKEN = 16  # characters
_BEARER = "bearer "
_REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed", 413: "Content Too Large",
    431: "Request Header Fields Too Large", 501: "Not Implemented",
}  # fmt: skip


@dataclass(frozen=True)
class PlainText:
    """An answer that is not JSON."""

    text: str


class HttpError(UsageError):
    """A request that HTTP has a number for."""

    def __init__(self, status: int, message: str, *, hint: str = "") -> None:
        self.status = status
        super().__init__(message, hint=hint)


class HttpWire:
    """Requests of HTTP, each with the token. What a client is refused for by this class also ends its connection."""

    def __init__(self, token: str, limit: int) -> None:
        self.limit = limit
        self._token = token.encode()

    def take(self, data: bytearray) -> Request | None:
        end = data.find(b"\r\n\r\n", 0, MOST_HEAD)
        if end < 0:
            if len(data) >= MOST_HEAD:
                raise HttpError(431, f"the head of a request is longer than {MOST_HEAD:,} bytes")
            return None
        method, path, headers, last = _head(bytes(data[:end]))
        verb = self._admit(path, headers)
        size = self._size(method, headers)
        if len(data) < end + 4 + size:
            return None
        body = bytes(data[end + 4 : end + 4 + size])
        del data[: end + 4 + size]
        return Request(body or b"{}", verb, last)

    def answer(self, message: Any) -> bytes:
        """Return an answer; a refusal has a number from 400 on, by `status` where it is known."""
        status = 200
        if isinstance(message, dict) and message.get("ok") is False:
            status = message.get("status", 400)
        if isinstance(message, PlainText):
            kind, body = "text/plain; version=0.0.4; charset=utf-8", message.text.encode()
        else:
            kind, body = "application/json", encode(message, limit=0)
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def _admit(self, path: str, headers: dict[str, str]) -> str:
        """Return the verb of a request that has the token."""
        given = headers.get("authorization", "")
        first, _, rest = path.partition("/")
        if given[: len(_BEARER)].lower() == _BEARER:
            token, verb = given[len(_BEARER) :].strip(), path
        else:
            token, verb = (first, rest) if rest else ("", path)
        if not hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            raise HttpError(401, "no access without the token", hint="send the header Authorization: Bearer TOKEN")
        if not verb or "/" in verb or len(verb) > 50:
            raise HttpError(404, "no such address", hint="the address is the verb, such as /decide")
        return verb

    def _size(self, method: str, headers: dict[str, str]) -> int:
        """Return how many bytes the body has."""
        if method not in ("GET", "POST"):
            raise HttpError(405, "only GET and POST are understood")
        if "transfer-encoding" in headers:
            raise HttpError(501, "a body in chunks is not understood", hint="send Content-Length")
        text = headers.get("content-length", "0")
        if not (text.isascii() and text.isdigit()):
            raise HttpError(400, "Content-Length is not a number")
        if len(text) > 12 or int(text) > self.limit:
            raise HttpError(413, f"a request is longer than {self.limit:,} bytes")
        return int(text)


def _head(data: bytes) -> tuple[str, str, dict[str, str], bool]:
    """Return method, path without its first slash, headers by their names in small letters, and whether the connection ends then."""
    first, *lines = data.decode("utf-8", "surrogateescape").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or not words[1].startswith("/"):
        raise HttpError(400, "not a request of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip() or (name in headers and name in ("content-length", "authorization")):
            raise HttpError(400, "a header cannot be read")
        headers[name] = value.strip()
    kept = headers.get("connection", "").lower()
    last = kept == "close" or (words[2] == "HTTP/1.0" and kept != "keep-alive")
    return words[0], words[1][1:].partition("?")[0], headers, last


def listen_on(host: str, port: int) -> socket.socket:
    """Listen on a port of this machine, which no other machine can reach."""
    if host not in LOOPBACK:
        raise UsageError(f"{host}: is not an address of this machine alone", hint=f"one of {', '.join(LOOPBACK)}")
    try:
        listener = socket.create_server((host, port), family=LOOPBACK[host], backlog=1024)
    except (OSError, OverflowError) as error:
        raise UsageError(f"{host}:{port}: cannot be listened on: {getattr(error, 'strerror', None) or error}") from None
    listener.setblocking(False)
    return listener


def read_token(path: Path) -> str:
    """Return the token in a file that only its owner can read; where there is no file, one is made."""
    with writing(path):
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(file, "w") as stream:
                stream.write(secrets.token_hex(32) + "\n")
    with reading(path), path.open("rb") as found:
        if os.fstat(found.fileno()).st_mode & 0o077:
            raise DataError(f"{path}: others may read the token", hint=f"chmod 600 {path}")
        token = found.read(1000).decode("ascii", "replace").strip()
    if len(token) < LEAST_TOKEN or not (token.isascii() and token.isalnum()):
        raise DataError(f"{path}: no token of at least {LEAST_TOKEN} letters and digits", hint="remove the file: a new one is made")
    return token
