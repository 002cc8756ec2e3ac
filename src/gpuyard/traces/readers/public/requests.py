"""Alibaba GenAI 2026: requests to image generators, each with the time that it took."""

from __future__ import annotations

from pathlib import Path

from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits
from gpuyard.traces.readers.csv import Form, open_table, quantities, workload_of

HEADER = ("gmt_create", "predict_type", "predict_status", "exec_time_seconds", "groupId")
_FORM = Form(
    {"submit": "gmt_create", "runtime": "exec_time_seconds", "job_class": "predict_type", "user": "groupId"}, also=("predict_status",)
)


def _sniff(head: Head) -> bool:
    return head.fields()[: len(HEADER)] == HEADER


@reader("genai2026", title="Alibaba GenAI 2026: image generation requests (lora_request_trace.csv)", sniff=_sniff)
def read_genai(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """One GPU for each request; those that had not ended (PENDING, PROCESSING) are dropped, failed ones kept."""
    table = open_table(path, _FORM, limits)
    values, notes = quantities(table)
    return workload_of(table, values, notes, unwanted={"had not ended": table.equals("predict_status", "PENDING", "PROCESSING")})
