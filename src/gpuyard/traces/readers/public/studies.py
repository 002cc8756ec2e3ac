"""Workloads that came with papers: RL-MetaDQN and Rubick."""

from __future__ import annotations

from pathlib import Path

from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits
from gpuyard.traces.readers.csv import Form, open_table, quantities, workload_of

META_HEADER = ("name", "command", "est_runtime_s", "deadline_s", "priority", "submit_time")
RUBICK_HEADER = ("name", "submission_time", "duration", "application", "num_gpus", "num_cpus", "bandwidth", "exec_plan", "steps", "is_sla")
_META = Form({"submit": "submit_time", "runtime": "est_runtime_s", "deadline": "deadline_s", "priority": "priority", "job_class": "name"})
_RUBICK = Form(
    {
        "submit": "submission_time", "runtime": "duration", "job_class": "application", "gpus": "num_gpus", "cpus": "num_cpus",
        "priority": "is_sla",
    }
)  # fmt: skip


def _is_meta(head: Head) -> bool:
    return head.fields() == META_HEADER


def _is_rubick(head: Head) -> bool:
    return head.fields() == RUBICK_HEADER


@reader("rlmetadqn", title="RL-MetaDQN workloads: jobs with deadlines and priorities", sniff=_is_meta)
def read_rlmetadqn(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read jobs of one GPU that run as long as the file estimates; its deadlines are relative to the submission.

    The class is the name up to `_job_` (LLM_TRAIN, EVAL …). The commands, all `sleep`, are ignored.
    """
    table = open_table(path, _META, limits)
    table = table.having("job_class", table.frame["job_class"].str.replace(r"_job_\d+$", ""))
    values, notes = quantities(table)
    values["deadline"] = values["deadline"] + values["submit"]
    return workload_of(table, values, ("run times are the estimates of the file", *notes), preset="rlmetadqn")


@reader("rubick", title="Rubick workloads: training jobs of named models", sniff=_is_rubick)
def read_rubick(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read jobs whose class is the application; those with an SLA have priority 1. Execution plans and bandwidth are not modelled."""
    table = open_table(path, _RUBICK, limits)
    values, notes = quantities(table)
    return workload_of(table, values, notes)
