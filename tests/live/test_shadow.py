"""What days of shadow logs say: the jobs that ended, what would have been different, and the report of it."""

from __future__ import annotations

import json
import math
import random
import re

import numpy as np
import pytest

from gpuyard import load_cluster, load_workload, simulate
from gpuyard.cli.main import run
from gpuyard.errors import DataError
from gpuyard.files import to_plain
from gpuyard.live.guards import usual_wait
from gpuyard.live.log import RotatedLog
from gpuyard.live.shadow import read_shadow
from gpuyard.model.cluster_file import cluster_to_dict

NODES, JOBS = 8, 600


@pytest.fixture(scope="module")
def week(tmp_path_factory):
    """The log of a shadow beside a site that runs first come, first served; its jobs and waits are those of a simulation."""
    workload, cluster = load_workload("demo").head(JOBS), load_cluster(f"{NODES}x8:a100")
    result = simulate(workload, cluster, "fcfs/fewest/easy")
    log = RotatedLog(tmp_path_factory.mktemp("shadow") / "shadow.jsonl", each=60_000, files=50)
    jobs, start, end = workload.jobs, result.table["start"], result.table["end"]
    log.add(
        {"t": float(jobs.submit[0]), "cycle": 0, "cluster": to_plain(cluster_to_dict(cluster), "cluster"), "scheduler": "sjf/fewest/easy"}
    )
    for number, now in enumerate(np.arange(jobs.submit[0], end.max() + 600, 300.0).tolist(), 1):
        ended = [
            {"job": str(k), "user": f"u{jobs.user[k]}", "partition": "", "submit": float(jobs.submit[k]), "start": float(start[k]),
             "ran": float(end[k] - start[k]), "gpus": int(jobs.gpus[k]), "chunk": int(jobs.chunk[k]), "type": "", "cpus": 0.0,
             "limit": str(float(jobs.walltime[k])), "nodes": 1}
            for k in np.flatnonzero((end > now - 600) & (end <= now)).tolist()  # each is seen twice, as after a restart
        ]  # fmt: skip
        begun = [[str(k), float(start[k] - jobs.submit[k])] for k in np.flatnonzero((start > now - 300) & (start <= now)).tolist()]
        waiting = np.flatnonzero((jobs.submit <= now) & (start > now)).tolist()
        log.add({"t": now, "cycle": number, "acts": False, "scheduler": "sjf/fewest/easy", "waiting": len(waiting), "started": begun,
                 "would_start": [[str(k), ["n1"]] for k in waiting[:1]], "out_of_order": len(waiting) // 2, "ended": ended})  # fmt: skip
    log.add({"t": now, "cycle": number + 1, "error": "squeue: no answer"})
    return log.path, result


def test_the_jobs_of_the_log_are_those_that_ran(week):
    path, result = week
    found = read_shadow(path)
    workload, cluster = found.workload()
    assert len(workload) == JOBS
    assert cluster.gpus == 8 * NODES
    np.testing.assert_allclose(np.sort(workload.runtime), np.sort(result.table["end"] - result.table["start"]))
    np.testing.assert_allclose(workload.logged_start - workload.jobs.submit, result.table["start"] - result.workload.jobs.submit, atol=1e-6)
    assert (found.errors, found.acted, found.broken) == (1, 0, 0)
    assert found.scheduler == "sjf/fewest/easy"
    assert usual_wait(path) == pytest.approx(float(np.mean(result.table["start"] - result.workload.jobs.submit)), rel=0.05)


def test_the_report_answers_with_intervals_and_says_how_it_is_known(week, tmp_path, capsys):
    path, _ = week
    assert run(["report", str(path), "--out", str(tmp_path / "page.html"), "-f", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    page = (tmp_path / "page.html").read_text()
    for words in ("What the shadow saw", "How this is known", "serve this cluster better than its own scheduler"):
        assert words in page
    assert "shortest job first" in page.lower()
    assert any(line.startswith("Order: in a usual cycle") for line in told["seen"])
    assert any(line.startswith("Measured: when the 600 jobs") for line in told["known"])
    assert "(between" in page
    assert "<script" not in page
    assert not re.search(r">u\d+<", page)  # users have pseudonyms there
    assert run(["report", str(path), "--scheduler", "saf/fewest/easy", "--out", str(tmp_path / "other.html")]) == 0
    assert "smallest area first" in (tmp_path / "other.html").read_text().lower()


@pytest.mark.parametrize(
    "line",
    [b"hello", b"[1, 2]", b'{"t": "x"}', b'{"t": 1e999}', b'{"t": 5, "ended": [{"job": "1", "submit": -1}, 7, null]}',
     b'{"t": 5, "cluster": {"nodes": 9}}', b'{"t": 5, "started": 3, "would_start": [[], 5]}'],
)  # fmt: skip
def test_a_damaged_line_harms_no_other(week, tmp_path, line):
    path, _ = week
    whole = b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}.*"), key=lambda each: -int(each.suffix[1:])))
    copy = tmp_path / "log.jsonl"
    copy.write_bytes(whole + path.read_bytes() + line + b"\n")
    assert len(read_shadow(copy).jobs) == JOBS


def test_random_damage_gives_a_log_or_one_error(week, tmp_path):
    path, _ = week
    data = path.read_bytes()[-20_000:]
    draw = random.Random(4)
    for _ in range(60):
        broken = bytearray(data)
        for _ in range(draw.randint(1, 30)):
            broken[draw.randrange(len(broken))] = draw.randrange(256)
        (tmp_path / "log.jsonl").write_bytes(bytes(broken))
        try:
            found = read_shadow(tmp_path / "log.jsonl")
        except DataError:
            continue
        assert math.isfinite(found.days)


def test_a_log_that_is_too_short_is_refused(tmp_path):
    log = RotatedLog(tmp_path / "log.jsonl")
    with pytest.raises(DataError, match="is not the log of a deployment"):
        read_shadow(log.path)
    log.add({"t": 1.0})
    with pytest.raises(DataError, match="names no cluster"):
        read_shadow(log.path).workload()
    assert run(["report", str(log.path)]) == 1
