"""Reads the notation of LSF: spans, counts, lists of hosts, GPUs in resource requirements."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Literal

GpusPer = Literal["host", "task", "job"]
MONTHS = {name: k for k, name in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)}
DATE = re.compile(r"([A-Z][a-z]{2})\s+(\d{1,2})\s+(\d{1,2}):(\d\d)(?::(\d\d))?(?:\s+(\d{4}))?(?:\s+[LEXD])?")
_GPUS = re.compile(r"\bngpus(?:_physical|_excl_p|_excl_t|_shared)?\s*=\s*(\d{1,6})(?:\.\d*)?(/task|/host|/job)?")
_GPU_OPTION = re.compile(r"(?:^|:)num=(\d{1,6})(/task|/host)?(?::|$)")
_GPU_MODEL = re.compile(r"(?:^|[:\s\[])gmodel=([\w.-]{1,60})")


def slots_of(text: str) -> float:
    if not re.fullmatch(r"\d{1,9}(?:\.0*)?", text.strip()):
        raise ValueError(f"{text[:40]!r} is not a count")
    return float(text)


def lsf_seconds(text: str, unit: float) -> float:
    """Parse `79 second(s)`, `00:10:00`, `0:10` (hours, minutes) or a number of `unit` s, maybe with a host (`1440.0/hostA`), else nan."""
    clean = re.sub(r"\s+[LEXD]$", "", text.strip()).partition("/")[0].strip()
    if not clean:
        return math.nan
    if match := re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)(?:\s*second\(s\))", clean):
        return float(match[1])
    if match := re.fullmatch(r"(\d{1,7}):(\d{1,2})(?::(\d{1,2}))?", clean):
        return 3600.0 * int(match[1]) + 60.0 * int(match[2]) + float(match[3] or 0)
    if match := re.fullmatch(r"\d{1,12}(?:\.\d{1,6})?", clean):
        return unit * float(clean)
    raise ValueError(f"{text[:40]!r} is not a time")


def host_slots(names: list[str]) -> Counter[str]:
    """Count the slots on each host, from `16*host1` or 16 times `host1`. Brackets and commas in a name would read as a list."""
    found: Counter[str] = Counter()
    for name in names:
        count, star, host = name.partition("*")
        many = int(count) if star and re.fullmatch(r"\d{1,6}", count) else 1
        found[re.sub(r"[\[\],\s]", "_", host if star else name) or "host"] += many
    return found


def gpus_asked(texts: list[str], hosts: int, slots: int, gpus_per: GpusPer) -> tuple[float, str]:
    """Return the GPUs in all and their model, from the requirements; nan where none are asked for."""
    for text in reversed(texts):
        match = _GPUS.search(text) or _GPU_OPTION.search(text)
        if match:
            per = (match[2] or f"/{gpus_per}")[1:]
            model = _GPU_MODEL.search(text)
            return float(int(match[1]) * {"host": max(hosts, 1), "task": slots, "job": 1}[per]), model[1].lower() if model else ""
    return math.nan, ""
