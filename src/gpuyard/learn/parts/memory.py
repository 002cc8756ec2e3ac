"""Memory that is asked for at once, and refused in one line where there is not enough."""

from __future__ import annotations

from pathlib import Path

from gpuyard.errors import LearningError

_GIB = 1 << 30


def available_memory() -> int:
    """Bytes that can be used without swapping, by the operating system's own estimate (/proc/meminfo)."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # not Linux: the allocation itself will tell
        return 1 << 62
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 1 << 62)


def refuse_if_too_large(what: str, size: int, hint: str) -> None:
    """Refuse to ask for `size` bytes if there are not so many."""
    if size > available_memory():
        raise too_large(what, size, hint)


def too_large(what: str, size: int, hint: str) -> LearningError:
    """For what needs `size` bytes."""
    return LearningError(f"{what} needs {size / _GIB:.1f} GiB of memory and {available_memory() / _GIB:.1f} GiB are available", hint=hint)
