"""Small public datasets: services of Alibaba (DLRM 2025, GenAI 2026), and the workloads of the RL-MetaDQN and Rubick papers."""

from __future__ import annotations

from pathlib import Path

from gpuyard.model.units import GIB
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.opening import DEFAULT_LIMITS, Limits
from gpuyard.traces.readers.csv import Form, open_table
from gpuyard.traces.readers.tables import quantities, workload_of

INSTANCE_HEADER = (
    "instance_sn", "role", "app_name", "cpu_request", "cpu_limit", "gpu_request", "gpu_limit", "rdma_request", "rdma_limit",
    "memory_request", "memory_limit", "disk_request", "disk_limit", "max_instance_per_node",
    "creation_time", "scheduled_time", "deletion_time",
)  # fmt: skip
_INSTANCES = Form(
    {
        "submit": "creation_time", "start": "scheduled_time", "end": "deletion_time", "gpus": "gpu_request", "cpus": "cpu_request",
        "memory": "memory_request", "job_class": "role", "user": "app_name",
    }
)  # fmt: skip
REQUEST_HEADER = ("gmt_create", "predict_type", "predict_status", "exec_time_seconds", "groupId")
_REQUESTS = Form(
    {"submit": "gmt_create", "runtime": "exec_time_seconds", "job_class": "predict_type", "user": "groupId"}, also=("predict_status",)
)
META_HEADER = ("name", "command", "est_runtime_s", "deadline_s", "priority", "submit_time")
RUBICK_HEADER = ("name", "submission_time", "duration", "application", "num_gpus", "num_cpus", "bandwidth", "exec_plan", "steps", "is_sla")
_META = Form({"submit": "submit_time", "runtime": "est_runtime_s", "deadline": "deadline_s", "priority": "priority", "job_class": "name"})
_RUBICK = Form(
    {
        "submit": "submission_time", "runtime": "duration", "job_class": "application", "gpus": "num_gpus", "cpus": "num_cpus",
        "priority": "is_sla",
    }
)  # fmt: skip


@reader("dlrm2025", title="Alibaba DLRM 2025: instances of recommendation models", sniff=lambda head: head.fields() == INSTANCE_HEADER)
def read_dlrm(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read instances that were created and deleted within the trace; others lack a submit or a run time and are dropped.

    The application is the user, the role (HN with one GPU, CN with CPUs only) the job class. Network and disk are not modelled. These are
    services, not batch jobs: waits in such a run only measure pressure.
    """
    table = open_table(path, _INSTANCES, limits)
    values, notes = quantities(table)
    values["memory"] = values["memory"] * GIB
    return workload_of(table, values, notes)


@reader(
    "genai2026", title="Alibaba GenAI 2026: image generation requests (lora_request_trace.csv)",
    sniff=lambda head: head.fields()[: len(REQUEST_HEADER)] == REQUEST_HEADER,
)  # fmt: skip
def read_genai(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read requests as jobs of one GPU; those that had not ended (PENDING, PROCESSING) are dropped, failed ones are kept."""
    table = open_table(path, _REQUESTS, limits)
    values, notes = quantities(table)
    return workload_of(table, values, notes, unwanted={"had not ended": table.equals("predict_status", "PENDING", "PROCESSING")})


@reader("rlmetadqn", title="RL-MetaDQN workloads: jobs with deadlines and priorities", sniff=lambda head: head.fields() == META_HEADER)
def read_rlmetadqn(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read jobs of one GPU that run as long as the file estimates; its deadlines are relative to the submission.

    The class is the name up to `_job_` (LLM_TRAIN, EVAL …). The commands, all `sleep`, are ignored.
    """
    table = open_table(path, _META, limits)
    table = table.having("job_class", table.frame["job_class"].str.replace(r"_job_\d+$", ""))
    values, notes = quantities(table)
    values["deadline"] = values["deadline"] + values["submit"]
    return workload_of(table, values, ("run times are the estimates of the file", *notes), preset="rlmetadqn")


@reader("rubick", title="Rubick workloads: training jobs of named models", sniff=lambda head: head.fields() == RUBICK_HEADER)
def read_rubick(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read jobs whose class is the application; those with an SLA have priority 1. Execution plans and bandwidth are not modelled."""
    table = open_table(path, _RUBICK, limits)
    values, notes = quantities(table)
    return workload_of(table, values, notes)
