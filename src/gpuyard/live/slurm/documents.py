"""Parses `squeue --json` and `sinfo --json`: the shape of 22.05, and that of later releases, whose numbers are tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuyard.errors import DataError
from gpuyard.files import parse_json
from gpuyard.live.slurm.records import indices_of, job_of, node_of
from gpuyard.live.state.site import SiteJob, SiteNode
from gpuyard.model.site.notation import node_names

MAX_PARTS = 5_000_000  # tables and lists


def document(text: bytes | str, where: str) -> Mapping[str, Any]:
    """Parse JSON with a table at its top."""
    opened = text.count(b"{") + text.count(b"[") if isinstance(text, bytes) else text.count("{") + text.count("[")
    if opened > MAX_PARTS:
        raise DataError(f"{where}: more than {MAX_PARTS:,} tables and lists")
    found = parse_json(text, where)
    if not isinstance(found, dict):
        raise DataError(f"{where}: is not a table")
    return found


def json_version(found: Mapping[str, Any]) -> str:
    """Return the release that wrote it; empty if it does not say."""
    meta = found.get("meta")
    slurm = (meta.get("Slurm") or meta.get("slurm")) if isinstance(meta, dict) else None
    return str(slurm.get("release", ""))[:40] if isinstance(slurm, dict) else ""


def json_jobs(found: Mapping[str, Any], where: str = "squeue --json") -> list[SiteJob]:
    """Read the jobs of `squeue --json`, without those that have ended."""
    made = []
    for number, each in enumerate(_rows(found, "jobs", where), 1):
        place = f"{where}: jobs[{number}]"
        fields = {name: _flat(value, place) for name, value in each.items() if name not in ("gres_detail", "job_resources")}
        if fields.get("time_limit", "").isdigit():
            fields["time_limit"] += ":00"  # minutes
        fields["array_job_id"] = fields.get("array_job_id", "").removeprefix("0") and fields["array_job_id"]
        job = job_of(fields, place, _devices(each, place))
        if job.waits or job.runs:
            made.append(job)
    return made


def json_nodes(found: Mapping[str, Any], where: str = "sinfo --json") -> list[SiteNode]:
    """Read the nodes of `sinfo --json` or `scontrol show node --json`."""
    made = []
    for number, each in enumerate(_rows(found, "nodes", where), 1):
        place = f"{where}: nodes[{number}]"
        fields = {name: _flat(value, place) for name, value in each.items()}
        flags = fields.get("state_flags", "")
        made.append(node_of(fields | {"state": "+".join(filter(None, (fields.get("state", "").replace(",", "+"), flags)))}, place))
    return made


def _rows(found: Mapping[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    rows = found.get(name)
    if not isinstance(rows, list) or not all(isinstance(each, dict) for each in rows):
        errors = found.get("errors")
        hint = f"Slurm says: {str(errors)[:120]}" if errors else ""
        raise DataError(f"{where}: has no list {name!r}", hint=hint)
    return rows


def _flat(value: object, where: str) -> str:
    """Return a value as the text that a table would have: `{"set": true, "number": 5}` is 5, a list its items with commas."""
    if isinstance(value, dict):
        if value.get("infinite"):
            return "UNLIMITED"
        return _flat(value.get("number"), where) if value.get("set") else ""
    if isinstance(value, list):
        return ",".join(_flat(each, where) for each in value if not isinstance(each, list | dict))
    if value is None or isinstance(value, bool):
        return ""
    return str(value)


def _devices(job: Mapping[str, Any], where: str) -> dict[str, tuple[int, ...]]:
    """Return the GPUs that a job holds: `gres_detail` has an entry for each of its nodes."""
    detail, nodes = job.get("gres_detail"), job.get("nodes")
    if not isinstance(detail, list) or not isinstance(nodes, str) or not detail:
        return {}
    try:
        names = node_names(nodes)
        each = [indices_of(text) for text in detail if isinstance(text, str)]
    except ValueError as error:
        raise DataError(f"{where}: gres_detail {error}") from None
    return {name: devices for name, devices in zip(names, each, strict=True) if devices} if len(names) == len(each) else {}
