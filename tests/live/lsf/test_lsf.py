"""Snapshots from what LSF's commands print. The texts are written after documented and published outputs of LSF 10.1."""

from __future__ import annotations

import random
from datetime import datetime

import pytest
from tests.support.mutations import mutated

from gpuyard.errors import DataError, GpuyardError
from gpuyard.live.deciding import outlook
from gpuyard.live.lsf.text import LsfTables, lsf_state
from gpuyard.live.reading import snapshot_of_files
from gpuyard.policies import parse_scheduler

BJOBS_JSON = """\
Cannot connect to LSF. Please wait ...
Cannot connect to LSF. Please wait ...
{
  "COMMAND":"bjobs",
  "JOBS":7,
  "RECORDS":[
    {"JOBID":"101","STAT":"RUN","USER":"ann","QUEUE":"gpu","PROJ_NAME":"vision","EXEC_HOST":"2*h1:2*h2","SLOTS":"4","GPU_NUM":"4","SUBMIT_TIME":"Nov 15 09:00","START_TIME":"Nov 15 09:05 L","RUNTIMELIMIT":"120.0","PENDSTATE":"","PEND_REASON":"","JOB_NAME":"gang"},
    {"JOBID":"102[1]","STAT":"RUN","USER":"bob","QUEUE":"gpu","PROJ_NAME":"nlp","EXEC_HOST":"h3:h3","SLOTS":"2","GPU_NUM":"1","SUBMIT_TIME":"Nov 15 09:10","START_TIME":"Nov 15 09:11","RUNTIMELIMIT":"00:30:00","PENDSTATE":"","PEND_REASON":"","JOB_NAME":"arr[1]"},
    {"JOBID":"102[2]","STAT":"PEND","USER":"bob","QUEUE":"gpu","PROJ_NAME":"nlp","EXEC_HOST":"","SLOTS":"","NREQ_SLOT":"2","GPU_NUM":"1","SUBMIT_TIME":"Nov 15 09:10","START_TIME":"","RUNTIMELIMIT":"30.0","PENDSTATE":"EPEND","PEND_REASON":"Not enough GPUs;","JOB_NAME":"arr[2]"},
    {"JOBID":"103","STAT":"PEND","USER":"eve","QUEUE":"urgent","PROJ_NAME":"nlp","EXEC_HOST":"","NREQ_SLOT":"8","EFFECTIVE_RESREQ":"select[type == any] rusage[ngpus_physical=2.00] ","SUBMIT_TIME":"Nov 15 09:30","START_TIME":"","RUNTIMELIMIT":"","PENDSTATE":"EPEND","PEND_REASON":"New job is waiting for scheduling;","JOB_NAME":"now"},
    {"JOBID":"104","STAT":"PSUSP","USER":"eve","QUEUE":"gpu","PROJ_NAME":"nlp","EXEC_HOST":"","NREQ_SLOT":"1","SUBMIT_TIME":"Nov 15 09:31","START_TIME":"","RUNTIMELIMIT":"","PENDSTATE":"","PEND_REASON":"The job was suspended by the user while pending;","JOB_NAME":"held"},
    {"JOBID":"105","STAT":"PEND","USER":"eve","QUEUE":"gpu","PROJ_NAME":"nlp","EXEC_HOST":"","NREQ_SLOT":"1","SUBMIT_TIME":"Nov 15 09:32","START_TIME":"","RUNTIMELIMIT":"","PENDSTATE":"IPEND","PEND_REASON":"Job dependency condition not satisfied;","JOB_NAME":"after"},
    {"JOBID":"106","STAT":"DONE","USER":"eve","QUEUE":"gpu","PROJ_NAME":"nlp","EXEC_HOST":"h1","SLOTS":"1","SUBMIT_TIME":"Nov 14 09:32","START_TIME":"Nov 14 09:33","RUNTIMELIMIT":"","PENDSTATE":"","PEND_REASON":"","JOB_NAME":"old"}
  ]
}
You have new mail in /var/spool/mail/lsfadmin
"""  # noqa: E501
BJOBS_TEXT = """\
JOBID|STAT|USER|QUEUE|EXEC_HOST|SLOTS|GPU_NUM|SUBMIT_TIME|START_TIME|RUNTIMELIMIT|PENDSTATE|JOB_NAME
101|RUN|ann|gpu|h1:h1:h2:h2|4|4|Nov 15 09:00|Nov 15 09:05 L|120.0|-|gang
107|PEND|ann|gpu|-|1|8|Nov 15 09:20|-|60.0 L|EPEND|wide
"""
BHOSTS = """\
HOST_NAME|STATUS|JL_U|MAX|NJOBS|RUN|SSUSP|USUSP|RSV|NGPUS|NGPUS_ALLOC
h1|ok|-|32|2|2|0|0|0|4|2
h2|closed_Full|-|32|32|32|0|0|0|4|2
h3|ok|-|32|2|2|0|0|0|2|1
h4|closed_Adm|-|32|0|0|0|0|0|4|0
c1|unavail|-|16|0|0|0|0|0|0|0
"""
GPUS = """\
HOST_NAME                  gpuid       gpu_model  gpu_mode gpu_status
h1                              0        TeslaV100        0     ok
                                1        TeslaV100        0     ok
                                2        TeslaV100        0     ok
                                3        TeslaV100        0     ok
h3                              0          TeslaT4        0     ok
                                1          TeslaT4        0     ok
"""
LSHOSTS = """\
HOST_NAME      type    model  cpuf ncpus maxmem maxswp server RESOURCES
h1            linux  IntelI5 100.0    32 256G      -    Yes ()
"""
BQUEUES = """\
QUEUE_NAME      PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP
gpu              30   Open:Active      -    -    -    -     7     4     3     0
urgent           90   Open:Active      -    -    -    -     1     1     0     0
"""
NOW = datetime(2026, 11, 15, 10, 0).timestamp()  # as LSF's dates, in this machine's time zone


@pytest.fixture
def read(tmp_path):
    def call(*texts, now=NOW):
        for k, text in enumerate(texts):
            (tmp_path / str(k)).write_text(text)
        return snapshot_of_files([tmp_path / str(k) for k in range(len(texts))], now)

    return call


def test_json_and_tables_of_one_cluster(read):
    saved = read(BJOBS_JSON, BHOSTS, GPUS, LSHOSTS, BQUEUES)
    s = saved.snapshot
    assert saved.source == "lsf"
    assert saved.names == ("101", "102[1]", "102[2]", "103")
    assert saved.ineligible == {"104": "it is held", "105": "a job that must end first has not ended"}
    assert saved.tiers == {"gpu": 30, "urgent": 90}
    assert [kind.name for kind in s.cluster.types] == ["teslav100", "gpu", "teslat4", "cpu"]
    assert s.cluster.nodes.gpus.tolist() == [4, 4, 2, 4, 0]
    assert s.cluster.nodes.memory[0] == pytest.approx(256 * 2**30 / 1e9)
    assert s.free_gpus().tolist() == [2, 2, 1, 0, 0]  # closed_Full opens again by itself; closed_Adm does not
    assert s.held.tolist() == [(0, 0, 2, -1, 3), (0, 1, 2, -1, 3), (1, 2, 1, -1, 1)]
    jobs = s.jobs
    assert jobs.gpus.tolist() == [4, 1, 1, 2]
    assert jobs.walltime.tolist() == [7200.0, 1800.0, 1800.0, float("inf")]
    assert jobs.submit[0] == datetime(2026, 11, 15, 9, 0).timestamp()
    assert s.live["run_start"][0] == datetime(2026, 11, 15, 9, 5).timestamp()
    assert saved.notes[0].startswith("which hosts a queue may use is not read")


def test_the_queue_of_a_higher_priority_goes_first(read):
    found = outlook(read(BJOBS_JSON, BHOSTS, BQUEUES), parse_scheduler("fcfs/fewest/skip"))
    assert [(each.name, each.action) for each in found] == [("103", "start"), ("102[2]", "start")]


def test_a_table_with_a_delimiter(read):
    saved = read(BJOBS_TEXT, BHOSTS)
    assert saved.names == ("101", "107")
    (seen,) = outlook(saved, parse_scheduler("sjf"))
    assert seen.reason == "asks for 8 GPUs; 5 are free"  # h3 says that one more is in use than jobs hold


def test_a_date_without_a_year_is_the_last_of_its_name(read):
    early = datetime(2027, 1, 3).timestamp()
    saved = read(BJOBS_TEXT, BHOSTS, now=early)
    assert datetime.fromtimestamp(saved.snapshot.jobs.submit[0]) == datetime(2026, 11, 15, 9, 0)
    leap = LsfTables()
    leap.add("JOBID|STAT|SUBMIT_TIME\n1|PEND|Feb 29 12:00\n", "bjobs")
    (job,) = lsf_state(leap, early, early).jobs
    assert datetime.fromtimestamp(job.submit) == datetime(2024, 2, 29, 12)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("No unfinished job found\n", BHOSTS), "is not what a command of Slurm or LSF prints"),
        ((BJOBS_TEXT,), "no file lists the nodes"),
        (("JOBID|STATE|NAME\n1|PENDING|x\n", BHOSTS), "some files are of Slurm and others of LSF"),
        (('{"COMMAND":"bjobs","RECORDS":1}', BHOSTS), "has no list 'RECORDS'"),
        (('{"COMMAND":"bjobs","RECORDS":[', BHOSTS), "not JSON"),
        ((BJOBS_TEXT.replace("Nov 15 09:20", "Nov 45 09:20"), BHOSTS), "0:3: 'Nov 45 09:20' is not a date"),
        ((BJOBS_TEXT.replace("107|", "x|"), BHOSTS), "0:3: JOBID = 'x' is not the number of a job"),
        ((BJOBS_TEXT, BHOSTS.replace("|32|2|", "|lots|2|")), "host h1: 'lots' is not a count"),
    ],
)
def test_what_cannot_be_read(read, texts, message):
    with pytest.raises(GpuyardError, match=message.replace("[", r"\[")):
        read(*texts)


def test_damaged_output_gives_one_error_or_a_snapshot(read):
    rng = random.Random(5)
    kept = 0
    for _ in range(150):
        texts = [BJOBS_TEXT, BJOBS_JSON, BHOSTS, GPUS, BQUEUES]
        k = rng.randrange(len(texts))
        lines = texts[k].splitlines()
        at = rng.randrange(len(lines))
        lines[at] = mutated([lines[at]], rng)
        texts[k] = "\n".join(lines).encode("utf-8", "replace").decode()
        try:
            outlook(read(*texts[(0 if k == 0 else 1) :]), parse_scheduler("sjf/fewest/easy"))
            kept += 1
        except GpuyardError as error:
            assert "\n" not in str(error)
    assert 10 < kept < 149


def test_published_samples(shared):
    """Outputs quoted in public code: each is recognised, and those with whole records are read."""
    text = (shared / "samples" / "lsf" / "bhosts_lsload.txt").read_text()
    tables = LsfTables()
    assert tables.add(text[text.index("HOST_NAME|NGPUS") :], "sample")
    assert tables.gpus["ip-11-21-111-198.ec2.internal"] == {"teslat4": 1}
    assert tables.hosts["ip-11-21-111-198.ec2.internal"]["ngpus"] == "1"
    json_text = (shared / "samples" / "lsf" / "bjobs_json.txt").read_text()
    first = LsfTables()
    with pytest.raises(DataError):  # it is shortened with "..."
        first.add(json_text[json_text.index('{ "COMMAND"') :], "sample")
    assert not first.add(json_text[json_text.index("{") :], "sample")  # that record was asked for without a job id
