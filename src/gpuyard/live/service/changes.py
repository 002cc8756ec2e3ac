"""Reads what clients say of jobs and hosts, as JSON.

{"job": "17", "do": "add", "gpus": 2, "cpus": 8, "memory": "32GB", "estimate": "2h", "user": "ann"}
{"job": "17", "do": "start", "parts": [{"node": "n1", "gpus": 2, "devices": [0, 1]}]}
{"job": "17", "do": "stop", "done": 600}
{"job": "17", "do": "end"}
{"host": "n1", "do": "down"}
{"host": "n1", "do": "up", "off": [3]}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuyard.live.service.registered import RegisteredSite
from gpuyard.model.cluster import partition_names
from gpuyard.model.decision import Part
from gpuyard.model.fields import Fields
from gpuyard.model.rules import parse_terms
from gpuyard.registry import unknown_name

MOST_NAME = 200  # characters
_COUNTS = {"gpus": 1e6, "cpus": 1e9, "priority": 1e15, "chunk": 1e6}  # and the most of each
_TIMES = ("estimate", "walltime", "deadline", "submit", "transfer")
_LABELS = {"user": "user", "account": "account", "qos": "qos", "partition": "partition", "class": "job_class", "gpu_type": "gpu_type",
           "terms": "terms"}  # fmt: skip


def apply_change(site: RegisteredSite, given: Fields) -> None:
    """Carry out one change, or refuse it as a whole."""
    if "host" in given:
        _change_host(site, given)
        return
    name, verb = job_name(given), given.text("do", limit=50)
    if verb not in _OF_JOBS:
        raise unknown_name("change", verb, list(_OF_JOBS))
    _OF_JOBS[verb](site, name, given)


def job_name(given: Fields) -> str:
    """Take the name of a job."""
    name = given.text("job", limit=MOST_NAME)
    if not name:
        raise given.error("job", "is empty")
    return name


def add_request(site: RegisteredSite, name: str, given: Fields) -> int:
    """Register a waiting job of which `given` says what it asks for; return its row."""
    columns: dict[str, float] = {key: given.number(key, high=most) for key, most in _COUNTS.items() if key in given}
    columns |= {key: given.seconds(key) for key in _TIMES if key in given}
    if "memory" in given:
        columns["memory"] = given.gigabytes("memory")
    labels = {column: given.text(key, limit=MOST_NAME) for key, column in _LABELS.items() if key in given}
    given.done()
    _check_labels(site, labels)
    return site.add(name, columns, labels)


def _check_labels(site: RegisteredSite, labels: Mapping[str, str]) -> None:
    known = site.cluster.partition_numbers
    if len(site.cluster.partitions) > 1 or "partition" in labels:
        label = labels.get("partition", "")
        for name in [label] if label in known else partition_names(label):
            if name not in known:
                raise unknown_name("partition", name, list(known))
    types = [kind.name for kind in site.cluster.types]
    for kind in labels.get("gpu_type", "").split("|") if labels.get("gpu_type") else ():
        if kind not in types:
            raise unknown_name("GPU type", kind, types)
    parse_terms(labels.get("terms", ""))


def _add(site: RegisteredSite, name: str, given: Fields) -> None:
    add_request(site, name, given)


def _start(site: RegisteredSite, name: str, given: Fields) -> None:
    parts = []
    for each in given.rows("parts"):
        node = site.node(each.text("node", limit=MOST_NAME))
        gpus, devices = each.number("gpus", 0.0, high=1e6), each.numbers("devices", whole=True) if "devices" in each else ()
        parts.append(Part(node, gpus, tuple(int(device) for device in devices)))
        each.done()
    given.done()
    site.start(name, parts)


def _stop(site: RegisteredSite, name: str, given: Fields) -> None:
    done = given.seconds("done", 0.0)
    given.done()
    site.stop(name, done)


def _end(site: RegisteredSite, name: str, given: Fields) -> None:
    given.done()
    site.end(name)  # repeated, it is harmless


_OF_JOBS: Mapping[str, Callable[[RegisteredSite, str, Fields], None]] = {"add": _add, "start": _start, "stop": _stop, "end": _end}


def _change_host(site: RegisteredSite, given: Fields) -> None:
    name, verb = given.text("host", limit=MOST_NAME), given.text("do", limit=50)
    off = [int(device) for device in given.numbers("off", whole=True)] if "off" in given else []
    given.done()
    if verb not in ("down", "up"):
        raise unknown_name("change", verb, ["down", "up"])
    site.set_host(name, down=verb == "down", off=off)


def clock_of(given: Fields) -> float | None:
    """Take the time that a client says it is, if it does."""
    if "now" not in given:
        return None
    return given.number("now")
