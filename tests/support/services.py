"""A decision service under test: a real process, as `gpuyard decide --serve` starts it."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.nodes import until

PATIENCE = 60.0  # s: a machine that tests something else at the same time is slow


class TriedService:
    """Starts the service in a folder: on a Unix socket, or on a port with a token."""

    def __init__(self, folder: Path, *options: str, http: bool = False) -> None:
        self.socket, self.token_file = folder / "gpuyard.sock", folder / "token"
        where = ["0", "--token", str(self.token_file)] if http else [str(self.socket)]
        self._log = folder / "service.log"
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "gpuyard", "decide", "--serve", *where, *options]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: "Ctrl-C ends it" in self.said or self.process.poll() is not None)
        assert self.process.poll() is None, self.said
        self.port = int(self.said.rpartition("127.0.0.1:")[2].partition(";")[0]) if http else 0
        self.token = self.token_file.read_text().strip() if http else ""

    @property
    def said(self) -> str:
        return self._log.read_text()

    def connect(self) -> TriedClient:
        return TriedClient(self.socket if not self.port else self.port)

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Ask over a connection of its own; over HTTP with the token."""
        if self.port:
            return self.fetch(f"/{verb}", json.dumps(arguments), {"Authorization": f"Bearer {self.token}"})[1]
        with self.connect() as client:
            return client.ask(verb, **arguments)

    def fetch(self, path: str, body: str = "{}", headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Send a request of HTTP, and return the status and the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("POST", path, body, headers or {})
            found = connection.getresponse()
            text = found.read().decode()
        finally:
            connection.close()
        assert text.count("\n") == 1
        return found.status, json.loads(text)

    def close(self) -> str:
        """Tell it to stop, and return what it has said."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0, self.said
        return self.said


class TriedClient:
    """A client as a stranger's program might be."""

    def __init__(self, where: Path | int) -> None:
        self.channel = socket.socket(socket.AF_INET if isinstance(where, int) else socket.AF_UNIX)
        self.channel.connect(("127.0.0.1", where) if isinstance(where, int) else str(where))
        self.channel.settimeout(PATIENCE)

    def __enter__(self) -> TriedClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def send(self, data: bytes) -> None:
        self.channel.sendall(data)

    def line(self) -> Any:
        """Return the next answer; None: the service has closed the connection."""
        data = b""
        while not data.endswith(b"\n"):
            piece = self.channel.recv(1 << 20)
            if not piece:
                return None
            data += piece
        return json.loads(data)

    def ask(self, verb: str, **arguments: Any) -> Any:
        self.send(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
        return self.line()

    def ended(self) -> bool:
        """Read until the service closes the connection."""
        try:
            while self.channel.recv(1 << 20):
                pass
        except ConnectionResetError:
            pass
        return True
