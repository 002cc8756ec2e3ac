"""The hook of place mode: a job_submit.lua that gives jobs of some partitions a begin time, and keeps their owners from changing it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gpuyard.errors import UsageError
from gpuyard.live.deployment.placing import MARK

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PATH = re.compile(r"/[A-Za-z0-9_./-]{1,200}")

SCRIPT = """\
-- job_submit.lua for gpuyard's place mode: put it beside slurm.conf, with JobSubmitPlugins=lua there.
-- A job of the partitions below gets a begin time DEADMAN seconds ahead. gpuyard starts it before, or puts the time off while it lives.
-- If gpuyard is dead, the time comes, and Slurm starts the job by itself. Whatever goes wrong here, the job is submitted as usual.
-- Slurm reads this file again at each submission: removing it, or creating STOP, ends all of it without a restart.

local DEADMAN = %(deadman)d
local PARTITIONS = { %(partitions)s }
local OPERATORS = { %(operators)s }
local STOP = "%(stop)s"
local MARK = "%(mark)s"

local function given(value)
  return value ~= nil and value ~= "" and value ~= 0 and value ~= slurm.NO_VAL and value ~= slurm.NO_VAL64 and value ~= slurm.NO_VAL16
end

local function stopped()
  local file = STOP ~= "" and io.open(STOP, "r")
  if file then file:close() end
  return file and true or false
end

local function default_partition(partitions)
  for name, part in pairs(partitions) do
    if part.flag_default ~= 0 then return name end
  end
end

-- Jobs that ask for what gpuyard does not see are left to Slurm.
local function ours(job, partitions)
  if not PARTITIONS[job.partition or default_partition(partitions) or ""] or stopped() then return false end
  if given(job.begin_time) or given(job.req_nodes) or given(job.exc_nodes) or given(job.features) or given(job.reservation) then
    return false
  end
  if given(job.licenses) or job.shared == 0 or given(job.tres_per_job) or given(job.tres_per_socket) or given(job.tres_per_task) then
    return false
  end
  local gres = (job.tres_per_node or ""):gsub("gres[:/]", "")
  return gres == "" or gres:match("^gpu[:=]?[%%w_:.-]*$") ~= nil -- GPUs of one kind, and nothing else
end

local function submit(job, partitions)
  if ours(job, partitions) then
    job.begin_time = os.time() + DEADMAN
    job.admin_comment = MARK
  end
end

function slurm_job_submit(job, partitions, uid)
  local well, problem = pcall(submit, job, partitions)
  if not well then slurm.log_error("gpuyard: %%s", tostring(problem)) end
  return slurm.SUCCESS
end

local function forbidden(job, record, uid)
  if record.admin_comment ~= MARK or OPERATORS[uid] or stopped() then return false end
  return given(job.begin_time) or job.req_nodes ~= nil or job.exc_nodes ~= nil or job.features ~= nil or job.partition ~= nil
    or given(job.tres_per_node)
end

function slurm_job_modify(job, record, partitions, uid)
  local well, no = pcall(forbidden, job, record, uid)
  if well and no then
    slurm.log_user("begin time, nodes, features, partition and GPUs of this job are its scheduler's; cancel it and submit it anew")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end

return slurm.SUCCESS
"""


def hook(partitions: Sequence[str], *, deadman: float, operators: Sequence[int] = (), stop_file: Path | None = None) -> str:
    """Return the script. `operators` are user numbers that may change jobs of others; root always may."""
    for name in partitions:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name[:80]!r} is not the name of a partition")
    if not partitions:
        raise UsageError("which partitions?", hint="--partition NAME")
    if stop_file is not None and not _PATH.fullmatch(str(stop_file)):
        raise UsageError(f"{stop_file}: a stop file needs a whole path of plain letters", hint="e.g. --stop-file /run/gpuyard/stop")
    if not 10 <= deadman <= 86_400:
        raise UsageError(f"a begin time {deadman:g} s ahead makes no sense", hint="from 10s to 24h, e.g. --deadman 10m")
    return SCRIPT % {
        "deadman": round(deadman), "partitions": ", ".join(f'["{name}"] = true' for name in partitions),
        "operators": ", ".join(f"[{uid}] = true" for uid in sorted({0, *operators})), "stop": stop_file or "", "mark": MARK,
    }  # fmt: skip
