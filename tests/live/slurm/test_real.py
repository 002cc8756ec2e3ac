"""What a real Slurm reports becomes a snapshot that can be decided on."""

from __future__ import annotations

import json
import time

import pytest
from tests.support.real_slurm import RealSlurm

from gpuyard.live.deciding import outlook
from gpuyard.live.slurm.commands import SlurmError, call, read_jobs, read_slurm
from gpuyard.live.state.file import parse_snapshot, snapshot_bytes
from gpuyard.live.state.site import site_snapshot
from gpuyard.policies import parse_scheduler


def until(condition, seconds=60.0):
    """Wait for something that a real Slurm does soon."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.05)


def test_a_real_queue_becomes_a_snapshot(slurm: RealSlurm):
    gang = slurm.submit("-N2", "--gres=gpu:a100:8", "-t10", "-Jgang")
    until(lambda: slurm.states()[gang] == "RUNNING")
    waits = slurm.submit("-N2", "--gres=gpu:a100:4", "-t20", "-Jna|me")
    array = slurm.submit("--array=0-3%1", "--gres=gpu:v100:4", "-t7")
    held = slurm.submit("-H", "--gpus=2", "-n2", "--mem=2G")
    after = slurm.submit(f"-dafterok:{gang}", "--gres=gpu:1")
    later = slurm.submit("--begin=now+1hour", "--gpus-per-node=1")
    cores = slurm.submit("-c4", "--mem-per-cpu=200M", "-t5")
    until(lambda: slurm.states()[cores] == "RUNNING")
    until(lambda: any(job.runs and job.array == array for job in read_jobs()))
    state = read_slurm()
    jobs = {job.name: job for job in state.jobs}
    assert (jobs[str(gang)].gpus, jobs[str(gang)].chunk, jobs[str(gang)].gpu_type, jobs[str(gang)].nodes) == (16, 8, "a100", ("a1", "a2"))
    assert (jobs[str(waits)].title, jobs[str(waits)].limit, jobs[str(held)].gpus) == ("na|me", 1200.0, 2)
    assert abs(jobs[str(cores)].submit - time.time()) < 60  # in seconds since 1970, whatever the time zone
    saved = site_snapshot(state)
    assert saved.source.startswith("slurm 2")
    why = {int(name.partition("_")[0]): reason for name, reason in saved.ineligible.items()}
    assert why[held] == "it is held"
    assert why[after] == "a job that must end first has not ended"
    assert why[later] == "its begin time has not come"
    assert why[array] == "as many jobs of its array run as may run at once"
    s = saved.snapshot
    assert [saved.name(row) for row in s.waiting] == [str(waits)]
    assert int(s.free_gpus().sum()) == 24 - 16 - 4
    assert s.jobs.table["memory"][saved.names.index(str(cores))] == pytest.approx(0.8 * 1.048576)
    (seen,) = outlook(parse_snapshot(snapshot_bytes(saved)), parse_scheduler("sjf/fewest/easy"))
    assert seen.reason == "asks for 8 a100 GPUs; 0 are free"


def test_gpus_that_jobs_hold_are_those_that_scontrol_names(slurm: RealSlurm, cli_run):
    job = slurm.submit("-w", "b1", "--gres=gpu:v100:2")
    until(lambda: slurm.states()[job] == "RUNNING")
    texts = {name: call(["scontrol", "-o", "-d", "show", name]) for name in ("job", "node", "partition")}
    saved = cli_run(texts)
    assert saved.snapshot.held.tolist() == [(0, 2, 2, -1, 0b11)]


@pytest.fixture
def cli_run(tmp_path):
    """What `gpuyard snapshot FILE…` makes of texts."""
    from gpuyard.live.reading import snapshot_of_files

    def read(texts):
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        return snapshot_of_files([tmp_path / name for name in texts])

    return read


def test_json_says_the_same_as_text(slurm: RealSlurm, cli_run):
    first = slurm.submit("-N2", "--gres=gpu:a100:8", "-t10")
    until(lambda: slurm.states()[first] == "RUNNING")
    slurm.submit("--gres=gpu:a100:2", "-t3")
    slurm.submit("-H", "--gres=gpu:1")
    by_json = cli_run({"jobs.json": call(["squeue", "--json"]), "nodes.json": call(["sinfo", "--json"])})
    by_text = site_snapshot(read_slurm())
    assert by_json.names == by_text.names
    assert by_json.ineligible == by_text.ineligible
    for name in ("gpus", "chunk", "walltime", "estimate", "cpus", "submit"):
        assert by_json.snapshot.jobs.table[name].tolist() == by_text.snapshot.jobs.table[name].tolist(), name
    assert by_json.snapshot.held.tolist() == by_text.snapshot.held.tolist()
    assert by_json.snapshot.nodes.tolist() == by_text.snapshot.nodes.tolist()
    json.loads(snapshot_bytes(by_json))


def test_a_drained_node_starts_nothing(slurm: RealSlurm):
    slurm.run("scontrol", "update", "nodename=a1", "state=drain", "reason=test")
    try:
        saved = site_snapshot(read_slurm())
        assert saved.snapshot.free_gpus().tolist() == [0, 8, 4, 4]
    finally:
        slurm.run("scontrol", "update", "nodename=a1", "state=resume")


def test_commands_that_fail_hang_or_are_absent(slurm: RealSlurm):
    with pytest.raises(SlurmError, match="squeue: "):
        call(["squeue", "--no-such-option"])
    with pytest.raises(SlurmError, match="no answer within 0.1 s"):
        call(["sleep", "5"], patience=0.1)
    with pytest.raises(SlurmError, match="no such command"):
        call(["no-such-command"])
