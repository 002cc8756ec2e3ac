"""Compiled code on disk: loaded only from a folder that nobody else can write to, and only as it was written.

Numba keeps its cache as pickles, and trusts whatever it finds. A file that was cut short or overwritten stopped every command with
an error from deep inside; one that somebody else put there would be executed. Here each file begins with a digest, and a folder
must belong to this user (or root) alone. What fails is compiled again, and said once.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite
import numba
from numba.core import typeinfer
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    InTreeCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys

from gpuyard.engine.compiler.linking import no_collection, prepare_numba

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba.core.ccallback import CFunc
    from numba.core.dispatcher import Dispatcher
    from numba.core.typing.templates import Signature

_NAME = b"gpuyard compiled code"
_HEAD = _NAME + f", numba {numba.__version__}, llvmlite {llvmlite.__version__}\n".encode()
_DIGEST = hashlib.sha256().digest_size
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def compile_cached(function: Dispatcher, signature: Signature) -> Any:
    """Compile a function that numba's `njit` has wrapped for one signature, or load it from the disk."""
    use_disk(function, function.py_func)
    with no_collection(), typeinfer.register_dispatcher(function):
        function.compile(signature)
        function.disable_compile()
    return function


def is_missing_on_disk(function: Callable[..., Any], signature: Signature) -> bool:
    """Whether the disk could have the code of a function, but does not."""
    try:
        cache = PrivateCache(function)
    except RuntimeError:  # there is no folder for it
        return False
    return cache._index_key(signature, cpu_target.target_context.codegen()) not in cache._cache_file._load_index()


def use_disk(compiler: Dispatcher | CFunc, function: Callable[..., Any]) -> None:
    """Let a dispatcher or C callback of numba, which has not compiled anything yet, keep its code on disk, if a folder for it is there."""
    try:
        compiler._cache = PrivateCache(function)  # type: ignore[union-attr]
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        _tell("no folder for compiled code can be used, so every start compiles again; set NUMBA_CACHE_DIR to one that is yours alone")


@cache
def _tell(text: str) -> None:
    sys.stderr.write(f"gpuyard: {text}\n")
    sys.stderr.flush()


# ── folders ──


def _others_may_write(about: os.stat_result) -> bool:
    return about.st_uid not in (os.getuid(), 0) or bool(about.st_mode & _OTHERS_WRITE)


class _PrivateFolder:
    """Makes numba pass over a folder that others can write to. New folders are open to their owner alone."""

    own = True  # whether the folder is for compiled code alone, so that its permissions are ours to set

    def ensure_cache_path(self) -> None:
        path = Path(self.get_cache_path())  # type: ignore[attr-defined]
        for folder in (path.parent, path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = path.stat()
        if self.own and about.st_uid == os.getuid() and _others_may_write(about):
            path.chmod(stat.S_IMODE(about.st_mode) & ~_OTHERS_WRITE)
        if _others_may_write(path.stat()):
            raise PermissionError(path)
        super().ensure_cache_path()  # type: ignore[misc]


class _FolderGiven(_PrivateFolder, UserProvidedCacheLocator):  # type: ignore[misc]
    """The folder in NUMBA_CACHE_DIR."""


class _FolderBeside(_PrivateFolder, InTreeCacheLocator):  # type: ignore[misc]
    """`__pycache__` beside the source."""

    own = False


class _FolderAtHome(_PrivateFolder, UserWideCacheLocator):  # type: ignore[misc]
    """The user's own folder for caches."""


class _PrivateImplementation(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_FolderGiven, _FolderBeside, _FolderAtHome)


# ── files ──


class SealedFiles(IndexDataCacheFile):  # type: ignore[misc]
    """Index and data files that begin with the versions and a digest. One that does not match is never unpickled: it counts as absent."""

    def __init__(self, folder: str, base: str, stamp: object) -> None:
        super().__init__(folder, f"{base}.sealed", stamp)  # numba's own files keep their names

    def _load_index(self) -> dict[Any, Any]:
        found = self._opened(self._index_path)
        stamp, overloads = found if found is not None else (None, {})
        return overloads if stamp == self._source_stamp else {}

    def _save_index(self, overloads: dict[Any, Any]) -> None:
        self._seal(self._index_path, (self._source_stamp, overloads))

    def _load_data(self, name: str) -> Any:
        found = self._opened(self._data_path(name))
        if found is None:
            raise FileNotFoundError(name)  # numba takes it as absent
        return found

    def _save_data(self, name: str, data: object) -> None:
        self._seal(self._data_path(name), data)

    def _seal(self, path: str, value: object) -> None:
        body = self._dump(value)
        with self._open_for_write(path) as file:
            os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) & ~_OTHERS_WRITE)  # whatever the umask
            file.write(_HEAD + hashlib.sha256(body).digest() + body)

    def _opened(self, path: str) -> Any:
        """Return what a file holds; None: it is not there, from other versions, not ours, or damaged."""
        try:
            with Path(path).open("rb") as file:
                raw = b"" if _others_may_write(os.fstat(file.fileno())) else file.read()
        except FileNotFoundError:
            return None
        except OSError:
            raw = b""
        head, line, rest = raw.partition(b"\n")
        if head.startswith(_NAME) and line and head + line != _HEAD:
            return None
        digest, body = rest[:_DIGEST], rest[_DIGEST:]
        if head + line != _HEAD or hashlib.sha256(body).digest() != digest:
            _tell(f"compiled code in {Path(path).parent} is damaged or not yours; it is compiled again")
            return None
        return pickle.loads(body)  # noqa: S301 - our own file, in a folder that nobody else can write to


class PrivateCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function, in such files."""

    _impl_class = _PrivateImplementation

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = SealedFiles(self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp())

    def load_overload(self, sig: Signature, target_context: Any) -> Any:
        """Return code from the disk; None: it is not there. Numba would first load its typing of all of numpy, 0.15 s, for nothing."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
        if found is None:
            prepare_numba()
        return found

    def save_overload(self, sig: Signature, data: object) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:  # the disk is full, files may not be that large, or something else lies in their place
            _tell(f"{self._cache_path}: compiled code cannot be saved ({error.strerror}), so the next start compiles again")
