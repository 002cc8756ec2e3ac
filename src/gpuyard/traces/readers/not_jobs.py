"""Recognises public tables that come with job traces but hold no jobs, so that an error says what they are."""

from __future__ import annotations

from collections.abc import Sequence

from gpuyard.traces.opening import Head

_TABLES: dict[tuple[str, ...], str] = {
    (
        "TIMESTAMP",
        "ContextTokens",
        "GeneratedTokens",
    ): "requests to a language model (Azure 2023), which have token counts but no run times",
    ("sn", "cpu_milli", "memory_mib", "gpu", "model"): "the machines of openb (the cluster preset `openb`)",
    ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"): "the machines of PAI 2020 (the cluster preset `pai2020`)",
    ("ip", "DSW", "PSW", "ASW"): "the hosts and switches of Lingjun 2023 (the cluster preset `lingjun2023`)",
    ("", "machineId", "number of GPUs"): "the machines of Philly (the cluster preset `philly`)",
    ("vc", "node num"): "the sizes of Philly's virtual clusters",
    ("id", "gpu_num", "job_num", "cpu_job_num"): "a summary of the Helios clusters",
    ("date", "vchbv", "vc4om"): "the sizes of Helios' virtual clusters by day",
    ("gpu_type", "model", "table", "placement"): "measured step times (a speed table, see --speeds)",
    ("model", "exec_plan", "placement", "cpu_threads"): "measured iteration times (a speed table, see --speeds)",
    ("dataset", "network", "batch_size", "optimizer", "power_limit"): "measured power and time per epoch",
    ("dataset", "network", "batch_size", "optimizer", "learning_rate"): "measured epochs to a target",
}


def what_table(names: Sequence[str]) -> str:
    """Describe a table by its first columns; empty where it may hold jobs."""
    return next((what for begin, what in _TABLES.items() if tuple(names[: len(begin)]) == begin), "")


def what_file(head: Head) -> str:
    """Describe a file by its first lines, as `what_table` does; Gavel's JSON is known as well."""
    if head.lines and head.lines[0].lstrip().startswith("{") and "(batch size" in head.lines[0] + "".join(head.lines[1:5]):
        return "measured throughputs (a speed table, see --speeds)"
    return what_table(head.fields())
