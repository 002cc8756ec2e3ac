"""Lets Ctrl-C reach compiled code.

Python runs a signal handler in the main thread, between two of its own instructions; while that thread is in a compiled kernel, it has to
wait. Here a thread of its own hears of the signal at once, through the descriptor that Python writes signals to, and sets a word that
kernels read at every instant; they return, and the ordinary handler runs. A kernel that does not return (a user's policy may loop for ever)
does not survive the second Ctrl-C: the process ends, with the exit code of an interrupted one. Files are written beside and moved, so that
none is left half written.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from functools import cache

import numpy as np

EXIT_CODE = 128 + signal.SIGINT
_SHOW_CURSOR = "\x1b[?25h\n"


class Interrupts:
    """Listens for Ctrl-C while the main thread is in compiled code: `with interrupts(): …`."""

    def __init__(self) -> None:
        self._word = np.zeros(1, np.int64)  # 1: kernels return as soon as they can
        self.address = int(self._word.ctypes.data)
        self._main = threading.main_thread().ident
        self._inside = False
        self._begun = False

    def _begin(self) -> None:
        self._begun = True
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if before != -1:  # somebody else listens, e.g. an event loop: it goes on, and kernels return every few thousand instants
            signal.set_wakeup_fd(before)
            os.close(reading)
            os.close(writing)
            return
        threading.Thread(target=self._listen, args=(reading,), daemon=True).start()
        os.register_at_fork(after_in_child=_stop_writing)

    def _listen(self, reading: int) -> None:
        while numbers := os.read(reading, 64):
            for number in numbers:
                if number == signal.SIGINT and self._inside:
                    self._interrupt()

    def _interrupt(self) -> None:
        if self._word[0]:
            _leave()
        self._word[0] = 1

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:  # the one that Ctrl-C is for, and the only one that may ask for signals
            if not self._begun:
                self._begin()
            self._inside = True

    def __exit__(self, *error: object) -> None:
        if threading.get_ident() == self._main:
            self._inside = False
            self._word[0] = 0


_lock = threading.Lock()
_made = cache(Interrupts)


def interrupts() -> Interrupts:
    """Return the listener of this process, which begins when the main thread first enters it."""
    with _lock:  # of two that threads make at once one would be freed, and its word, by then anything, read by kernels for ever
        return _made()


def _stop_writing() -> None:
    """Keep the signals of a forked process to itself: the descriptor is its parent's, and no thread of its own reads it."""
    with suppress(ValueError):
        signal.set_wakeup_fd(-1)


def _leave() -> None:
    """End the process at once. Nothing can be tidied up while the main thread does not come back, except the terminal."""
    with suppress(OSError, ValueError):
        if sys.stderr.isatty():
            sys.stderr.write(_SHOW_CURSOR)
        sys.stderr.write("gpuyard: interrupted\n")
        sys.stderr.flush()
    os._exit(EXIT_CODE)
