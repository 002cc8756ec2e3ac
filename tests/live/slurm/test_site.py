"""Partitions, tiers, eligibility and what is held, from what Slurm's commands print (22.05 and shapes like it)."""

from __future__ import annotations

import json
import random

import pytest
from tests.support.mutations import mutated

from gpuyard.errors import DataError, GpuyardError
from gpuyard.live.deciding import outlook
from gpuyard.live.reading import snapshot_of_files
from gpuyard.live.slurm.documents import json_jobs, json_nodes
from gpuyard.live.slurm.records import unverified
from gpuyard.live.slurm.text import scontrol_jobs, scontrol_nodes, scontrol_partitions, sinfo_nodes, site_factors, squeue_jobs
from gpuyard.live.state.site import SiteState, site_snapshot, why_ineligible
from gpuyard.policies import parse_scheduler

SQUEUE = """\
JOBID|ARRAY_JOB_ID|STATE|REASON|PRIORITY|TRES_PER_NODE|NODELIST|NODES|CPUS|TIME_LIMIT|START_TIME|SUBMIT_TIME|USER|ACCOUNT|PARTITION|NAME
10|10|RUNNING|None|90|gres:gpu:a100:8|g[1-2]|2|16|2:00:00|1700000100|1700000000|ann|vision|long|gang
11|11|PENDING|Resources|80|gres:gpu:8||2|16|1:00:00|N/A|1700000010|bob|nlp|long|wide
12|12|PENDING|Priority|70|gres:gpu:v100:2||1|4|30:00|N/A|1700000020|bob|nlp|debug|quick
13_0|13|PENDING|Priority|60|gres:gpu:1||1|1|10:00|N/A|1700000030|eve|nlp|long,debug|arr
13_1|13|PENDING|JobArrayTaskLimit|60|gres:gpu:1||1|1|10:00|N/A|1700000030|eve|nlp|long,debug|arr
14|14|PENDING|QOSMaxGRESPerUser|50|gres:gpu:1||1|1|10:00|N/A|1700000040|eve|nlp|long|limited
15|15|PENDING|AssocGrpGRES|50|N/A||1|8|UNLIMITED|N/A|1700000050|eve|nlp|apart|assoc
16|16|PENDING|Priority|40|N/A||1|8|UNLIMITED|N/A|1700000060|eve|nlp|apart|cores|and|bars
"""
NODES = """\
NodeName=g1 CPUTot=64 Gres=gpu:a100:8 GresUsed=gpu:a100:8(IDX:0-7) Version=22.05.8 OS=x y=z State=MIXED RealMemory=512000 Partitions=long
NodeName=g2 CPUTot=64 Gres=gpu:a100:8 GresUsed=gpu:a100:8(IDX:0-7) State=MIXED RealMemory=512000 Partitions=long
NodeName=g3 CPUTot=64 Gres=gpu:v100:4(S:0-1) GresUsed=gpu:v100:0(IDX:N/A) State=IDLE RealMemory=512000 Partitions=long,debug
NodeName=g4 CPUTot=64 Gres=gpu:a100:8 GresUsed=gpu:a100:0(IDX:N/A) State=IDLE+DRAIN RealMemory=512000 Partitions=long
NodeName=g5 CPUTot=64 Gres=gpu:a100:8 GresUsed=gpu:a100:3(IDX:0-2) State=MIXED RealMemory=512000 Partitions=long
NodeName=c1 CPUTot=32 Gres=(null) State=IDLE RealMemory=128000 Partitions=apart
NodeName=c2 CPUTot=32 Gres=(null) State=DOWN* RealMemory=128000 Partitions=apart
"""
PARTITIONS = """\
PartitionName=long
   PriorityJobFactor=10 PriorityTier=1 MaxTime=1-00:00:00
   State=UP TotalNodes=5
PartitionName=debug PriorityJobFactor=1 PriorityTier=5 MaxTime=UNLIMITED State=UP
PartitionName=apart PriorityJobFactor=1 PriorityTier=1 MaxTime=UNLIMITED State=UP
"""
NOW = 1700003600.0


@pytest.fixture
def saved(tmp_path):
    for name, text in {"q": SQUEUE, "n": NODES, "p": PARTITIONS}.items():
        (tmp_path / name).write_text(text)
    return snapshot_of_files([tmp_path / name for name in "qnp"], NOW)


def row(saved, name):
    return saved.names.index(name)


def test_partitions_that_share_nodes_are_one_and_others_are_apart(saved):
    cluster = saved.snapshot.cluster
    assert [(p.name, p.also, p.priority) for p in cluster.partitions] == [("apart", (), 1.0), ("debug", ("long",), 10.0)]
    assert [kind.name for kind in cluster.types] == ["a100@long", "v100@debug+long", "cpu"]
    assert saved.tiers == {"apart": 1, "debug": 5, "long": 1}


def test_a_job_reaches_only_the_nodes_of_its_partitions(saved):
    jobs = saved.snapshot.jobs
    wanted = {name: jobs.gpu_types[jobs.gpu_type[row(saved, name)]] for name in saved.names}
    assert wanted == {
        "10": "a100@long", "11": "a100@long|v100@debug+long", "12": "v100@debug+long", "13_0": "a100@long|v100@debug+long", "16": "",
    }  # fmt: skip
    home = {name: jobs.partitions[jobs.partition[row(saved, name)]] for name in saved.names}
    assert home["13_0"] == "debug"  # the one of the higher tier
    assert jobs.walltime[row(saved, "10")] == 7200.0


def test_what_is_held_drained_down_or_used_by_others_is_not_free(saved):
    s = saved.snapshot
    assert s.held.tolist() == [(0, 0, 8, -1, 255), (0, 1, 8, -1, 255)]
    assert s.free_gpus().tolist() == [0, 0, 4, 0, 5, 0, 0]
    assert s.nodes["down"].tolist() == [0, 0, 0, 1, 0, 0, 1]
    assert s.nodes["off"].tolist() == [0, 0, 0, 0, 3, 0, 0]


def test_jobs_that_may_not_start_are_left_out_with_the_reason(saved):
    assert saved.ineligible == {
        "13_1": "as many jobs of its array run as may run at once", "14": "its QOS is at a limit",
        "15": "its account or user is at a limit",
    }  # fmt: skip


def test_decisions_go_by_tier_and_stay_in_reach(saved):
    found = {each.name: (each.action, each.place, each.reason) for each in outlook(saved, parse_scheduler("fcfs/fewest/skip"))}
    assert found["12"][:2] == ("start", "g3")
    assert found["13_0"][0] == "start"
    assert "asks for 16 a100|v100 GPUs" in found["11"][2]
    assert found["16"][:2] == ("start", "c1")


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("None", ""), ("Priority", ""), ("JobHeldAdmin", "held"), ("BeginTime", "begin"), ("Dependency", "after"),
        ("DependencyNeverSatisfied", "after-failed"), ("Reservation", "reservation"), ("Licenses", "licence"),
        ("MaxJobsPerAccount", "account-limit"),
        ("AssocMaxJobsLimit", "account-limit"), ("QOSGrpCpuLimit", "qos-limit"), ("PartitionTimeLimit", "partition-limit"),
        ("ReqNodeNotAvail, UnavailableNodes:a1", "node-down"), ("BadConstraints", "impossible"), ("SomethingNew", None),
    ],
)  # fmt: skip
def test_reasons(reason, why):
    (job,) = squeue_jobs(f"JOBID|STATE|REASON|PARTITION|NAME\n1|PENDING|{reason}|long|x\n")
    assert why_ineligible(job, NOW, {}) == why


@pytest.mark.parametrize("reason", ["launch failed requeued held", "Priority"])
def test_a_job_of_priority_0_is_held_whatever_its_reason_says(reason):
    """Under priority/basic a new priority would release it."""
    (job,) = squeue_jobs(f"JOBID|STATE|REASON|PRIORITY|NAME\n17|PENDING|{reason}|0|x\n")
    assert (job.waits, job.why) == (True, "held")


def test_an_unknown_reason_and_release_are_noted_and_the_job_stays():
    jobs = squeue_jobs("JOBID|STATE|REASON|TRES_PER_NODE|PARTITION|NAME\n1|PENDING|SomethingNew|gres:gpu:1|long|x\n")
    saved = site_snapshot(SiteState(NOW, jobs, scontrol_nodes(NODES), (), "slurm 26.05.1", unverified("26.05.1")))
    assert len(saved.snapshot.waiting) == 1
    assert saved.notes == (
        "Slurm 26.05.1: no sample of this release has been read before; check a few jobs by eye",
        "reason SomethingNew is not known; the job is taken as eligible",
    )


def test_a_closed_partition_admits_nobody():
    closed = scontrol_partitions(PARTITIONS.replace("State=UP TotalNodes", "State=DOWN TotalNodes"))
    saved = site_snapshot(SiteState(NOW, squeue_jobs(SQUEUE), scontrol_nodes(NODES), closed))
    assert saved.ineligible["11"] == "its partition is closed, at a limit or does not admit it"
    assert "13_0" in saved.names  # it may also use another


def test_a_name_or_comment_cannot_pass_for_a_field():
    (job,) = squeue_jobs(SQUEUE.splitlines()[0] + "\n" + SQUEUE.splitlines()[-1])
    assert (job.title, job.partitions) == ("cores|and|bars", ("apart",))
    with pytest.raises(DataError, match="JobState is given twice"):
        scontrol_jobs("JobId=1 JobName=x JobState=RUNNING Priority=1 JobState=PENDING Partition=long\n")


def test_the_shape_of_later_releases():
    """Numbers are tables and states are lists from 23.02 on, as its documentation says."""
    number, no_number = {"set": True, "infinite": False, "number": 30}, {"set": False, "infinite": False, "number": 0}
    job = {
        "job_id": 7, "array_job_id": no_number, "job_state": ["PENDING"], "state_reason": "None", "time_limit": number,
        "tres_per_node": "gres/gpu:a100:2", "node_count": number | {"number": 1}, "cpus": number | {"number": 4},
        "submit_time": number | {"number": 1700000000}, "user_name": "ann", "partition": "long", "name": "x",
    }  # fmt: skip
    jobs = json_jobs({"jobs": [job]})
    assert (jobs[0].limit, jobs[0].gpus, jobs[0].gpu_type, jobs[0].submit, jobs[0].waits) == (1800.0, 2, "a100", 1700000000.0, True)
    (node,) = json_nodes({"nodes": [{"name": "g1", "state": ["IDLE", "DRAIN"], "cpus": 8, "real_memory": 1000, "gres": "gpu:a100:2(S:0)",
                                     "gres_used": "gpu:a100:0", "partitions": ["long"]}]})  # fmt: skip
    assert (node.gpus, node.open) == ({"a100": 2}, False)


def test_sinfo_has_a_line_for_each_partition():
    text = "NODELIST|STATE|CPUS|MEMORY|GRES|GRES_USED|PARTITION\ng1|mixed|64|512000|gpu:a100:8|gpu:a100:2(IDX:0-1)|long*\n"
    (node,) = sinfo_nodes(text + text.splitlines()[1].replace("long*", "debug"))
    assert (node.partitions, node.used, node.gpus) == (("debug", "long"), 2, {"a100": 8})


def test_site_factors():
    text = "JOBID|SITE|PRIORITY\n2|-5|1\n11|40|1\n11|40|1\n"
    assert site_factors(text) == {2: -5, 11: 40}
    with pytest.raises(DataError, match="sprio:2: "):
        site_factors("JOBID|SITE\nx|1\n")


SAMPLES = (
    ("squeue_o.txt", "scontrol_o_d_show_node.txt", "scontrol_show_partition.txt"), ("scontrol_show_job.txt", "scontrol_o_d_show_node.txt"),
    ("squeue.json", "sinfo.json"), ("squeue.json", "scontrol_o_d_show_node.txt"),
)  # fmt: skip


@pytest.mark.parametrize("names", SAMPLES)
def test_samples_of_a_real_slurm(shared, names):
    saved = snapshot_of_files([shared / "samples" / name for name in names])
    s = saved.snapshot
    assert (len(s.running), s.cluster.gpus) == (1, 24)
    assert saved.source == "slurm 22.05.8"
    assert not [note for note in saved.notes if "array" not in note]
    outlook(saved, parse_scheduler("sjf/fewest/easy"))


def test_damaged_output_gives_one_error_or_a_snapshot(tmp_path):
    rng = random.Random(3)
    read = 0
    for _ in range(150):
        texts = [SQUEUE, NODES, PARTITIONS]
        k = rng.randrange(3)
        lines = texts[k].splitlines()
        at = rng.randrange(len(lines))
        lines[at] = mutated([lines[at]], rng)
        texts[k] = "\n".join(lines)
        for name, text in zip("qnp", texts, strict=True):
            (tmp_path / name).write_bytes(text.encode("utf-8", "replace"))
        try:
            outlook(snapshot_of_files([tmp_path / name for name in "qnp"], NOW), parse_scheduler("sjf/fewest/easy"))
            read += 1
        except GpuyardError as error:
            assert "\n" not in str(error)
    assert 15 < read < 148


def test_files_that_are_none(tmp_path):
    for text, message in {
        "hello\n": "is not what a command of Slurm or LSF prints", "{}": "has neither jobs nor nodes", '{"jobs": 1}': "has no list 'jobs'",
        SQUEUE: "no file lists the nodes", "JOBID|STATE\n1\n": ":2: 1 fields, the header names 2",
        "JOBID|STATE\nx|PENDING\n": "'x' is not the number",
    }.items():  # fmt: skip
        (tmp_path / "f").write_text(text)
        with pytest.raises(GpuyardError, match=message):
            snapshot_of_files([tmp_path / "f"])


def test_snapshot_and_decide_on_the_command_line(cli_text, tmp_path):
    for name, text in {"q": SQUEUE, "n": NODES, "p": PARTITIONS}.items():
        (tmp_path / name).write_text(text)
    out = tmp_path / "s.json"
    code, _, err = cli_text("snapshot", *(tmp_path / name for name in "qnp"), "--now", NOW, "--out", out)
    assert code == 0
    assert "1 jobs run, 4 may start, 3 may not yet" in err
    found = json.loads(cli_text("decide", out, "-f", "json").out)
    assert {each["job"]: each["now"] for each in found["jobs"]} == {"12": "start", "13_0": "start", "16": "start", "11": "wait"}
    assert cli_text("snapshot", "slurm", out).code == 2


@pytest.fixture
def cli_text(capsys):
    from tests.cli.conftest import Outcome

    from gpuyard.cli.main import run

    def call(*arguments):
        code = run([str(each) for each in arguments])
        return Outcome(code, *capsys.readouterr())

    return call
