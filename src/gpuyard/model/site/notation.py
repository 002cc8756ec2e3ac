"""Reads the notation of Slurm and LSF: spans, instants, memory, trackable resources, node lists.

Each function takes the text of a field and raises ValueError, with the reason as its text, where it cannot be read.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gpuyard.model.units import GIB, MIB

MAX_NODES = 100_000  # in one node list
NO_LIMIT = 4_294_967_294  # Slurm's NO_VAL; its INFINITE is one more
_MAX_MEMORY_MB = 2**31  # from here on it is Slurm's flag for "per CPU", or nothing

_SPAN = re.compile(r"(?:(\d{1,7})-)?(?:(\d{1,7}):)?(\d{1,7}):(\d{1,2}(?:\.\d{1,9})?)")
_DAY_HOUR = re.compile(r"(\d{1,7})-(\d{1,2})")
_NO_SPAN = {"", "unlimited", "infinite", "partition_limit", "unknown", "none", "n/a", "not_set", "invalid", "(null)"}
_EPOCH = re.compile(r"\d{1,12}(?:\.\d{1,9})?")
_NO_TIME = {"", "0", "unknown", "none", "n/a", "(null)", "null", "invalid"}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMGTPE]?)(?:i?B)?([nc]?)", re.I)
_UNIT_GB = {"K": MIB / 1024, "M": MIB, "G": GIB, "T": GIB * 1024, "P": GIB * 1024**2, "E": GIB * 1024**3}  # Slurm's and LSF's are binary
_COUNT = re.compile(r"\d{1,9}")
_GRES_INDICES = re.compile(r"\([^()]*\)")
_PIECE = re.compile(r"([^\[\],]*)\[([^\[\]]*)\]|([^\[\],]+)")
_PYTHON_LIST = re.compile(r"\[\s*'[^']*'(\s*,\s*'[^']*')*\s*\]")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


def seconds_of(text: str) -> float:
    """Parse `[D-]HH:MM:SS`, `MM:SS.mmm` or `D-HH` to seconds; inf without a limit."""
    clean = text.strip()
    if clean.lower() in _NO_SPAN:
        return math.inf
    if match := _SPAN.fullmatch(clean):
        days, hours, minutes, seconds = match.groups()
        return 86400.0 * int(days or 0) + 3600.0 * int(hours or 0) + 60.0 * int(minutes) + float(seconds)
    if match := _DAY_HOUR.fullmatch(clean):
        return 86400.0 * int(match[1]) + 3600.0 * int(match[2])
    raise ValueError("is not a time such as 1-02:03:04")


def minutes_of(text: str) -> float:
    """Parse a limit in minutes to seconds; inf without a limit (also 0 and Slurm's NO_VAL and INFINITE)."""
    clean = text.strip()
    if clean.lower() in _NO_SPAN:
        return math.inf
    if not re.fullmatch(r"\d{1,12}(?:\.\d{1,6})?", clean):
        return seconds_of(clean)
    return 60.0 * float(clean) if 0 < float(clean) < NO_LIMIT else math.inf


def instant_of(text: str) -> float:
    """Parse an ISO time (UTC unless it has a zone) or seconds since 1970 to seconds since 1970; nan where not set."""
    clean = text.strip()
    if clean.lower() in _NO_TIME:
        return math.nan
    if _EPOCH.fullmatch(clean):
        return float(clean)
    try:
        when = datetime.fromisoformat(clean)
    except ValueError:
        raise ValueError("is neither an ISO time nor seconds since 1970") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def gigabytes_of(text: str) -> tuple[float, str]:
    """Parse `4000Mc`, `62.50G`, `0n` to GB, and whether it is per node (`n`), per core (`c`) or in all (``); plain numbers are MiB."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError("is not an amount of memory")
    amount = float(match[1]) * _UNIT_GB[match[2].upper() or "M"]
    return (amount if amount / MIB < _MAX_MEMORY_MB else math.nan), match[3].lower()


@dataclass(frozen=True)
class Resources:
    """Resources that a job asked for or got; nan: not said. `gpu_type` is empty where the GPUs are untyped or of several types."""

    cpus: float = math.nan
    memory: float = math.nan  # GB
    nodes: float = math.nan
    gpus: float = math.nan
    gpu_type: str = ""
    shards: float = math.nan  # of GPUs: how many make one only the site knows


def tres_of(text: str) -> Resources:
    """Parse `cpu=8,mem=32G,node=2,gres/gpu:a100=4,gres/gpu=4,billing=8`; other keys are ignored."""
    amount: dict[str, float] = {}
    typed: dict[str, float] = {}
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if key == "mem":
            amount["memory"] = gigabytes_of(value)[0]
        elif key in ("cpu", "node", "gres/gpu", "gres/shard"):
            amount[key] = _count(key, value)
        elif key.startswith("gres/gpu:"):
            kind = type_label(key[9:])
            typed[kind] = typed.get(kind, 0.0) + _count(key, value)
    found = resources(amount.get("cpu"), amount.get("memory"), amount.get("node"), amount.get("gres/gpu"), typed)
    return replace(found, shards=amount.get("gres/shard", math.nan))


def gres_of(text: str) -> Resources:
    """Parse the GPUs of an older GRES column: `gpu:2`, `gpu:volta:1`, `gpu:kepler:2(IDX:0-1),craynetwork:1`, `gres:gpu:2`."""
    total: float | None = None
    shards = math.nan
    typed: dict[str, float] = {}
    for part in _GRES_INDICES.sub("", text).split(","):
        words = part.strip().removeprefix("gres:").removeprefix("gres/").split(":")
        if words[0] == "shard" and words[-1].isdigit():
            shards = _count("shard", words[-1])
        if words[0] != "gpu":
            continue
        count = _count("gpu", words[-1]) if len(words) > 1 and words[-1].isdigit() else 1.0
        kind = words[1] if len(words) == 3 or (len(words) == 2 and not words[1].isdigit()) else ""
        if kind:
            typed[type_label(kind)] = typed.get(type_label(kind), 0.0) + count
        else:
            total = (total or 0.0) + count
    return replace(resources(gpus=total, typed=typed), shards=shards)


def resources(
    cpus: float | None = None, memory: float | None = None, nodes: float | None = None,
    gpus: float | None = None, typed: dict[str, float] | None = None,
) -> Resources:  # fmt: skip
    """Collect the amounts; the GPUs are the total where it is given, else the sum of the typed ones."""
    kinds = {kind: count for kind, count in (typed or {}).items() if count > 0}
    total = gpus if gpus is not None else sum(typed.values()) if typed else None
    one = next(iter(kinds)) if len(kinds) == 1 and (gpus is None or kinds[next(iter(kinds))] >= gpus) else ""
    said = [math.nan if value is None else float(value) for value in (cpus, memory, nodes, total)]
    return Resources(said[0], said[1], said[2], said[3], one)


def type_label(text: str) -> str:
    """Turn a GPU type into a label: lower case, without the mark that separates alternatives."""
    return text.strip().lower().replace("|", "_")[:100]


def _count(key: str, value: str) -> float:
    if not _COUNT.fullmatch(value):
        raise ValueError(f"has {key}={value[:20]!r}, which is not a count")
    return float(value)


def node_names(text: str) -> list[str]:
    """Expand `gpu[001-004,7],c1` to names, in order; `rack[1-2]n[1-4]` is every combination. At most 100,000.

    A list as Python writes it, `['c1', 'c2']`, is one of names.
    """
    names: list[str] = []
    for item in re.findall(r"'([^']*)'", text) if _PYTHON_LIST.fullmatch(text.strip()) else _items(text):
        parts: list[list[str]] = []
        size = 1
        for prefix, inside, plain in _PIECE.findall(item):
            choices = [prefix + number for number in _numbers(inside)] if inside or not plain else [plain]
            parts.append(choices)
            size *= len(choices)
            if size > MAX_NODES:
                raise ValueError(f"names more than {MAX_NODES:,} nodes")
        names.extend("".join(combination) for combination in itertools.product(*parts))
        if len(names) > MAX_NODES:
            raise ValueError(f"names more than {MAX_NODES:,} nodes")
    return names


def _items(text: str) -> Iterator[str]:
    """Yield the parts between commas outside brackets."""
    start, inside = 0, False
    for at, letter in enumerate(text):
        if letter in "[]":
            if inside is (letter == "["):
                raise ValueError("has brackets that do not match")
            inside = letter == "["
        elif letter == "," and not inside:
            if at > start:
                yield text[start:at].strip()
            start = at + 1
    if inside:
        raise ValueError("has brackets that do not match")
    if start < len(text):
        yield text[start:].strip()


def _numbers(inside: str) -> list[str]:
    found: list[str] = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise ValueError(f"has {part[:20]!r}, which is not a range")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"has the range {part[:20]!r}, which runs backwards")
        if last - first >= MAX_NODES - len(found):
            raise ValueError(f"names more than {MAX_NODES:,} nodes")
        width = len(match[1])
        found.extend(str(number).zfill(width) for number in range(first, last + 1))
    return found


def ranges_text(numbers: Sequence[int]) -> str:
    """Write numbers as `1-3,5`: neighbours that ascend are a range."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
