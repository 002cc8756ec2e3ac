"""Download one file of known size over HTTP, continuing where an earlier attempt broke off."""

from __future__ import annotations

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from gpuyard.errors import DataError
from gpuyard.files import claim, writing

SCHEMES = ("http", "https")
_CHUNK = 1 << 16  # bytes
_RANGE = re.compile(r"bytes (\d{1,15})-\d{1,15}/(?:\d{1,15}|\*)")
_PATIENT = frozenset({408, 425, 429, 500, 502, 503, 504})  # status codes that may pass


@dataclass(frozen=True)
class Resuming:
    """A downloader for pooch. Bytes received so far are kept in `part`, also after Ctrl-C; only a whole file becomes the output.

    The file must have exactly `size` bytes, and more are never stored. It gives up after `attempts` attempts in a row without a new byte.
    """

    part: Path
    size: int
    timeout: float = 30.0  # s without a byte
    attempts: int = 3
    pause: float = 1.0  # s before the second attempt, twice as long before the third …
    progress: Callable[[int], None] = lambda done: None

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Download `url` to `output_file`."""
        check_scheme(url, url)
        with _locked(self.part) as file:
            self._fetch(url, file)
            os.replace(self.part, output_file)  # noqa: PTH105 - the name is a text of pooch's
            self._validator.unlink(missing_ok=True)

    @property
    def _validator(self) -> Path:
        """The file with the ETag or date of what is in `part`."""
        return self.part.with_name(self.part.name + ".etag")

    def _fetch(self, url: str, file: IO[bytes]) -> None:
        failures = 0
        while _length(file) != self.size:
            before = _length(file)
            try:
                self._request(url, file)
            except (OSError, http.client.HTTPException) as error:
                failures = 0 if _length(file) > before else failures + 1
                if failures >= self.attempts or not _passing(error):
                    raise self._broken(url, error, _length(file)) from None
                time.sleep(self.pause * 2 ** max(failures - 1, 0))

    def _request(self, url: str, file: IO[bytes]) -> None:
        """Send one request and append what comes. Raises OSError if the connection breaks off."""
        begin = _length(file)
        headers = {"User-Agent": "gpuyard", "Accept-Encoding": "identity"}
        if 0 < begin < self.size:
            headers["Range"] = f"bytes={begin}-"
            tag = self._validator.read_text(encoding="latin-1") if self._validator.exists() else ""
            headers |= {"If-Range": tag} if tag else {}
        else:
            file.truncate(0)
        request = urllib.request.Request(url, headers=headers)
        try:
            with _opener().open(request, timeout=self.timeout) as answer:
                self._receive(url, answer, file)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:  # the file on the server has changed
                file.truncate(0)
            raise

    def _receive(self, url: str, answer: Any, file: IO[bytes]) -> None:
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise DataError(f"{url}: comes as {answer.headers['Content-Encoding'][:40]!r}, which was not requested")
        self._place(answer, file)
        begin, announced = _length(file), answer.headers.get("Content-Length", "")
        if announced.isdigit() and begin + int(announced) != self.size:
            self._discard(url, file, begin + int(announced))
        with self._storing():
            self._validator.write_text(_tag(answer.headers), encoding="latin-1")
        while piece := answer.read(_CHUNK):
            with self._storing():
                _write_all(file, piece)
            if _length(file) > self.size:
                self._discard(url, file, _length(file))
            self.progress(_length(file))
        if _length(file) < self.size:
            raise ConnectionError("the connection was cut")

    @contextmanager
    def _storing(self) -> Iterator[None]:
        """Report a full disk at once: unlike a broken connection, it does not pass by trying again."""
        with writing(self.part, hint="is there room on the disk?"):
            yield

    def _place(self, answer: Any, file: IO[bytes]) -> None:
        """Make the file end where the answer begins: a server without ranges sends everything."""
        if answer.status == 206:
            match = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if match and int(match[1]) == _length(file):
                return
            file.truncate(0)
            raise ConnectionError("the server sent another range than requested")
        if answer.status != 200:
            raise ConnectionError(f"the server says {answer.status}")
        file.truncate(0)

    def _discard(self, url: str, file: IO[bytes], size: int) -> None:
        file.truncate(0)
        raise DataError(f"{url}: has {'more than ' if size > self.size else ''}{min(size, self.size):,} bytes instead of {self.size:,}")

    def _broken(self, url: str, error: Exception, done: int) -> DataError:
        reason = " ".join(str(getattr(error, "reason", None) or error).split())[:200] or type(error).__name__
        if isinstance(error, urllib.error.HTTPError):
            return DataError(f"{url}: the server says {error.code} {reason}")
        hint = "run it again: it continues from there" if done else "is there a network?"
        return DataError(f"{url}: broke off after {done:,} of {self.size:,} bytes ({reason})", hint=hint)


def check_scheme(url: str, asked: str) -> None:
    """Refuse addresses that are not HTTP, such as files of this machine."""
    if urlsplit(url).scheme not in SCHEMES:
        raise DataError(f"{asked}: leads to {url[:200]!r}, which is not http or https")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows redirects to HTTP only."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        check_scheme(newurl, req.full_url)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """Return an opener for HTTP only: the usual one also reads files."""
    opener = urllib.request.OpenerDirector()
    parts = urllib.request
    plain = (parts.ProxyHandler, parts.HTTPHandler, parts.HTTPSHandler, parts.HTTPDefaultErrorHandler)
    for handler in (*plain, _Redirects, parts.HTTPErrorProcessor):
        opener.add_handler(handler())
    return opener


def _passing(error: Exception) -> bool:
    """Return whether another attempt may succeed; an answer such as 404 is final."""
    return not isinstance(error, urllib.error.HTTPError) or error.code in _PATIENT or error.code == 416


def _tag(headers: Mapping[str, str]) -> str:
    """Return the value for `If-Range`: a strong ETag, else the date."""
    tag = headers.get("ETag", "")
    return tag if tag.startswith('"') else headers.get("Last-Modified", "")


def _write_all(file: IO[bytes], piece: bytes) -> None:
    """Write the whole piece: an unbuffered file may accept only part of it at a time."""
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]


def _length(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """Open the file to append, locked; unbuffered, because a buffer would be written once more on closing."""
    with path.open("ab", buffering=0) as file:
        # another process may have finished and moved the file away between the opening and the lock
        if not claim(file) or not path.exists() or not os.path.samestat(os.fstat(file.fileno()), path.stat()):
            raise DataError(f"{path}: another process is fetching this file", hint="wait for it")
        yield file
