"""A real node as the dashboard shows it: what changes, why jobs wait, what is decided, actions, a daemon that goes and comes back."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard import Simulation
from gpuyard.errors import UsageError
from gpuyard.live.node.book import MOST_CHANGED, ChangeLog
from gpuyard.live.slurm.commands import SlurmError
from gpuyard.live.state.file import SavedSnapshot, write_snapshot
from gpuyard.policies import parse_scheduler
from gpuyard.testing.strategies import random_case
from gpuyard.web.sources.node import NodeSource
from gpuyard.web.sources.site import SiteSource
from gpuyard.web.sources.systems import SYSTEMS, SiteLook, look_of_files
from support.dashboards import NOW, TOKEN, ManyJobs, TriedDashboard, row_of
from support.nodes import TriedNode, until

HEAD = {"Authorization": f"Bearer {TOKEN}"}


def jobs_of(served: TriedDashboard, **query: str) -> dict[int, dict[str, Any]]:
    page = served.get("/api/live/jobs?" + "&".join(f"{name}={value}" for name, value in query.items()), **HEAD)
    rows = [dict(zip(page["columns"], row, strict=True)) for row in page["rows"]]
    return {row["number"]: row for row in rows}


def test_jobs_of_a_node_are_followed(node: TriedNode, dashboard: TriedDashboard):
    long = node.shell("echo made; sleep 60", name="long", cpus=4.0, estimate=60.0)
    held = node.submit("true", name="held one", held=True)
    waits = node.submit("true", name="next")
    until(lambda: jobs_of(dashboard).get(long, {}).get("state") == "RUNNING", "it runs")
    until(lambda: jobs_of(dashboard)[held]["reason"] == "it is held", "the reason is shown")
    assert list(jobs_of(dashboard)) == [long, waits, held] or list(jobs_of(dashboard)) == [long, held, waits]
    seen = dashboard.get("/api/live", **HEAD)
    assert (seen["busy"], seen["total"], seen["unit"], seen["problem"]) == (4.0, 4.0, "CPU slot", "")
    detail = dashboard.get(f"/api/live/jobs/{waits}", **HEAD)
    assert "waits for 1 CPU slot" in detail["detail"]["why"] and detail["detail"]["position"] == 1
    assert "sleep 60" in dashboard.get(f"/api/live/jobs/{long}", **HEAD)["detail"]["command"]
    until(lambda: "made" in dashboard.get(f"/api/live/jobs/{long}/output", **HEAD)["text"], "its output is shown")
    gantt = dashboard.get("/api/live/gantt", **HEAD)
    assert gantt["devices"] == [f"slot {k}" for k in range(4)]
    assert [(span[0], span[3], span[5]) for span in gantt["spans"]] == [(long, [0, 1, 2, 3], 0.0)]
    assert {each["action"] for each in dashboard.get("/api/live/decisions", **HEAD)["decisions"]} == {"start"}
    until(lambda: dashboard.get("/api/live/lines/queue", **HEAD)["lines"][0]["values"][-1] == 2, "the queue is measured")


def test_actions_reach_the_node(node: TriedNode, dashboard: TriedDashboard):
    long = node.shell("sleep 60", cpus=4.0)
    first, second = (node.submit("sleep", "60", name=name, cpus=4.0) for name in ("first", "second"))
    until(lambda: set(jobs_of(dashboard)) == {long, first, second}, "all are shown")

    def act(action: str, number: int) -> None:
        status, said, _ = dashboard.ask("/api/live/actions", method="POST", body={"action": action, "number": number}, headers=HEAD)
        assert status == 200, said

    act("hold", first)
    assert node.job(first).held
    act("release", first)
    assert not node.job(first).held
    act("top", second)
    act("cancel", long)
    until(lambda: node.state(second) == "RUNNING", "who was put first starts first")
    assert node.state(first) == "PENDING"
    until(lambda: jobs_of(dashboard)[long]["state"] == "KILLED", "what was cancelled has ended")
    status, said, _ = dashboard.ask("/api/live/actions", method="POST", body={"action": "hold", "number": long}, headers=HEAD)
    assert status == 409 and "not PENDING" in said["error"]
    assert dashboard.ask("/api/live/actions", method="POST", body={"action": "hold", "number": 999}, headers=HEAD)[0] == 404


def test_who_is_put_first_stays_so_after_a_crash(node: TriedNode):
    node.shell("sleep 60", cpus=4.0)
    early, late = node.submit("sleep", "60", cpus=4.0), node.submit("sleep", "60", cpus=4.0)
    node.client.call("first", ids=[late])
    node.kill()
    node.start()
    node.client.call("cancel", ids=[1])
    until(lambda: node.state(late) == "RUNNING", "it goes first")
    assert node.state(early) == "PENDING"


def test_a_node_that_goes_and_comes_back(node: TriedNode, dashboard: TriedDashboard):
    """The daemon is killed: the dashboard says so, and shows the jobs that the next one has."""
    job = node.shell("sleep 60", name="stays")
    until(lambda: jobs_of(dashboard).get(job, {}).get("state") == "RUNNING", "it runs")
    node.kill()
    until(lambda: "no node runs" in dashboard.get("/api/live", **HEAD)["problem"], "the problem is told")
    assert job in jobs_of(dashboard)  # as it was seen last
    node.start()
    other = node.submit("true", name="new", held=True)
    until(lambda: other in jobs_of(dashboard) and not dashboard.get("/api/live", **HEAD)["problem"], "it is seen again")
    assert jobs_of(dashboard)[job]["state"] == "RUNNING"


def test_a_node_is_read_in_pieces_and_then_by_changes(node: TriedNode, monkeypatch: pytest.MonkeyPatch):
    from gpuyard.web.sources import node as source_module

    monkeypatch.setattr(source_module, "PIECE", 3)
    numbers = [node.submit("true", held=True) for _ in range(20)]
    source = NodeSource(node.folder)
    first = source.look()
    assert first.fresh and [row.number for row in first.rows] == numbers[::-1][:18] and first.loading
    second = source.look()
    assert [row.number for row in second.rows] == [2, 1] and not second.loading
    assert source.look().rows == []
    node.client.call("cancel", ids=numbers[:2])
    assert {row.number: row.state for row in source.look().rows} == {numbers[0]: "KILLED", numbers[1]: "KILLED"}
    source.close()


def test_readings_of_the_gpus_are_shown(tmp_path: Path, node: TriedNode):
    readings = tmp_path / "gpus.json"
    gpu = {"index": 0, "uuid": "GPU-0", "name": "H200", "memory": 140.0, "free": 40.0, "utilisation": 0.5, "watts": 300.0, "celsius": 55.0}
    readings.write_text(json.dumps([gpu, {**gpu, "index": 1, "uuid": "GPU-1", "lost": "fell off the bus"}]))
    node.kill()
    node.start(gpus=str(readings))
    source = NodeSource(node.folder)
    seen = source.look()
    source.close()
    assert next((each.name, each.state, each.utilisation, each.memory, each.watts, each.celsius) for each in seen.gpus) == (
        "GPU 0", "free", 0.5, 100.0, 300.0, 55.0,
    )  # fmt: skip
    assert seen.gpus[1].state == "gpu-lost" and "fell off the bus" in seen.trouble


def test_the_log_of_changes_has_each_job_once_and_an_end():
    log = ChangeLog()
    for job in (1, 2, 3, 1):
        log.note(job)
    assert log.since(0, 10) == ([2, 3, 1], 4)
    assert log.since(0, 2) == ([2, 3], 3) and log.since(3, 2) == ([1], 4)
    assert log.since(4, 10) == ([], 4)
    assert log.since(5, 10) is None  # of another log
    for job in range(MOST_CHANGED + 10):
        log.note(job)
    assert log.since(0, 10) is None and log.since(log.number - 5, 10) is not None


# ── batch systems ──


def test_a_snapshot_is_shown_with_what_a_scheduler_would_do(tmp_path: Path):
    saved = _saved()
    write_snapshot(saved, tmp_path / "now.json")
    source = SiteSource(look_of_files([tmp_path / "now.json"]), parse_scheduler("sjf/fewest/easy"))
    seen = source.look()
    s = saved.snapshot
    states = [row.state for row in seen.rows]
    assert (states.count("RUNNING"), states.count("PENDING")) == (len(s.running), len(s.waiting))
    assert seen.order is not None and len(seen.order) == len(s.waiting) == len(seen.keys)
    known = {row.number: row for row in seen.rows}
    assert list(seen.keys) == [known[number].estimate for number in seen.order]  # shortest job first: its score is the estimate
    assert seen.total == float(s.cluster.nodes.gpus.sum())
    waiting = next(row.number for row in seen.rows if row.state == "PENDING")
    assert source.detail(waiting)["why"]
    assert not source.can_act
    with pytest.raises(UsageError, match="only be looked at"):
        source.act("cancel", waiting)


def test_who_leaves_the_queue_of_a_batch_system_has_ended(tmp_path: Path):
    saved = _saved()
    snapshots = [SiteLook(saved), SiteLook(SavedSnapshot(*_without_jobs(saved)))]
    source = SiteSource(lambda: snapshots.pop(0) if len(snapshots) > 1 else snapshots[0], None, every=0.05)
    served = TriedDashboard(source)
    try:
        until(lambda: served.get("/api/live").get("counts") == {"GONE": len(saved.snapshot.jobs)}, "all have left")
    finally:
        served.stop()


def test_a_batch_system_is_told_to_act_on_single_jobs_alone():
    called: list[Sequence[str]] = []
    saved = SavedSnapshot(_saved().snapshot, "slurm 22.05.8", tuple(f"{k}_1" for k in range(len(_saved().snapshot.jobs))))
    source = SiteSource(lambda: SiteLook(saved), None, system=replace(SYSTEMS["slurm"], run=called.append))
    source.look()
    source.act("top", 1)
    assert called == [["scontrol", "top", "0_1"]]
    for name in ("-h; rm", "17_[1-5]", ""):
        source._seen.names[1] = name
        with pytest.raises(UsageError, match="single jobs"):
            source.act("cancel", 1)
    assert len(called) == 1


def test_a_source_that_fails_is_named_and_asked_again():
    class Failing(ManyJobs):
        def look(self) -> Any:
            if self.looks in (1, 2):
                self.looks += 1
                raise SlurmError("squeue: no answer within 30 s") if self.looks == 2 else ValueError("odd")
            return super().look()

    served = TriedDashboard(Failing(running=1, every=0.1))
    try:
        problems = set()
        until(lambda: problems.add(served.get("/api/live")["problem"]) or len(problems) > 1, "it fails")
        until(lambda: served.get("/api/live")["problem"] == "" and "now" in served.get("/api/live"), "it is seen again")
    finally:
        served.stop()
    assert any("no answer" in each or "odd" in each for each in problems)


def test_rows_that_change_are_asked_for_once_for_all(tmp_path: Path):
    """One collector, however many ask."""
    source = ManyJobs(running=1, waiting=3, every=30.0)
    served = TriedDashboard(source)
    try:
        until(lambda: len(served.get("/api/live/jobs")["rows"]) == 4)
        looks = source.looks
        for _ in range(20):
            served.get("/api/live")
            served.get("/api/live/jobs")
        assert source.looks == looks
        source.changed = [row_of(2, "DONE")]
        served.app.state.collector.wake()
        assert served.get("/api/live")["counts"] == {"RUNNING": 1, "PENDING": 2, "DONE": 1}
    finally:
        served.stop()
    assert time.time() < NOW * 2


def _saved() -> SavedSnapshot:
    case = random_case(7, "rack")
    simulation, scheduler = Simulation(case.workload, case.cluster, rules=case.rules), parse_scheduler("sjf/fewest/easy")
    while (snapshot := simulation.advance()) is not None:
        if len(snapshot.waiting) > 1 and len(snapshot.running) > 1:
            return SavedSnapshot(snapshot, "slurm 22.05.8")
        simulation.apply(scheduler.decide(snapshot))
    raise AssertionError("nobody waits")


def _without_jobs(saved: SavedSnapshot) -> tuple[Any, str]:
    s = saved.snapshot
    jobs = replace(s.jobs, table=s.jobs.table[:0])
    return replace(s, jobs=jobs, live=s.live[:0], held=s.held[:0], now=s.now + 5.0), "slurm"
