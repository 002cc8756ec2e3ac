"""A real Slurm and an LSF that stands in for one, as the dashboard shows them: who runs where, who waits and why, what ends, actions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuyard.policies import parse_scheduler
from gpuyard.web.sources.site import SiteSource
from gpuyard.web.sources.systems import SYSTEMS
from support.dashboards import TOKEN, TriedDashboard
from support.nodes import until
from support.real_slurm import RealSlurm, private_slurm
from support.standin_lsf import StandInLsf
from web.conftest import ATTACK

KEY = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def slurm() -> Iterator[RealSlurm]:
    with private_slurm() as made:
        yield made


@pytest.fixture
def lsf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInLsf]:
    folder = tmp_path / "lsf"
    folder.mkdir()
    made = StandInLsf(folder)
    for name in ("PATH", "STANDIN_LSF", "STANDIN_BIN", "STANDIN_USER"):
        monkeypatch.setenv(name, made.environment[name])
    made.start()
    yield made
    made.stop()


@contextmanager
def shown(system: str) -> Iterator[TriedDashboard]:
    """A dashboard of that system, which looks often and may act."""
    source = SiteSource(SYSTEMS[system].look, parse_scheduler("sjf/fewest/easy"), every=0.1, system=SYSTEMS[system])
    served = TriedDashboard(source, token=TOKEN, actions=True)
    try:
        yield served
    finally:
        served.stop()


def rows(served: TriedDashboard) -> dict[str, dict[str, Any]]:
    """Return the jobs by their labels."""
    found = served.get("/api/live/jobs", **KEY)
    return {row[found["columns"].index("label")]: dict(zip(found["columns"], row, strict=True)) for row in found["rows"]}


def states(served: TriedDashboard) -> dict[str, str]:
    return {label: str(row["state"]) for label, row in rows(served).items()}


def act(served: TriedDashboard, action: str, label: str) -> None:
    number = rows(served)[label]["number"]
    status, said, _ = served.ask("/api/live/actions", method="POST", body={"action": action, "number": number}, headers=KEY)
    assert status == 200, said


def test_a_real_slurm_is_shown_and_acted_on(slurm: RealSlurm, monkeypatch: pytest.MonkeyPatch):
    with slurm.used(monkeypatch), shown("slurm") as served:
        running = str(slurm.submit("--gres=gpu:a100:8", "--time=10", f"--job-name={ATTACK}"))
        until(lambda: slurm.states()[int(running)] == "RUNNING", "it runs")
        waiting = str(slurm.submit("--gres=gpu:a100:8", "--nodes=2", "--time=20"))
        later = str(slurm.submit("--gres=gpu:8", "--nodelist=a1", "--time=30", "--job-name=later", seconds=0.0))
        held = str(slurm.submit("--gres=gpu:1", "--hold"))
        until(lambda: states(served) == {running: "RUNNING", waiting: "PENDING", later: "PENDING", held: "PENDING"}, "all are shown")
        seen, found = served.get("/api/live", **KEY), rows(served)
        assert (seen["busy"], seen["total"], seen["unit"]) == (8.0, 24.0, "GPU") and seen["title"].startswith("slurm")
        assert seen["problem"] == "" and not [each for each in seen["notes"] if "array" in each]
        assert len(seen["gpus"]) == 24 and sum(gpu[3] == [running] for gpu in seen["gpus"]) == 8
        assert found[running]["name"] == ATTACK and found[running]["place"] in ("a1", "a2") and found[running]["gpus"] == 8
        assert found[held]["reason"] == "it is held" and found[later]["name"] == "later"
        detail = served.get(f"/api/live/jobs/{found[waiting]['number']}", **KEY)["detail"]
        assert detail["why"].startswith("wait")
        (span,) = served.get("/api/live/gantt", **KEY)["spans"]
        assert span[1] == running and len(span[3]) == 8
        act(served, "hold", later)
        until(lambda: rows(served)[later]["reason"] == "it is held", "it is held")
        act(served, "release", later)
        act(served, "cancel", running)
        act(served, "cancel", waiting)
        until(lambda: states(served)[running] == "GONE" and states(served)[later] == "DONE", "they have ended")
        assert rows(served)[running]["end"] >= rows(served)[running]["start"] > 0


@pytest.mark.slow  # squeue tries for ten seconds
def test_a_slurm_that_goes_and_comes_back_is_told(slurm: RealSlurm, monkeypatch: pytest.MonkeyPatch):
    with slurm.used(monkeypatch), shown("slurm") as served:
        until(lambda: served.get("/api/live", **KEY)["problem"] == "", "it is seen")
        slurm.kill("slurmctld")
        try:
            until(lambda: "Unable to contact" in served.get("/api/live", **KEY)["problem"], "it is missed")
            assert served.get("/api/live", **KEY)["total"] == 24.0  # what was seen last
        finally:
            slurm.restart("slurmctld")
        until(lambda: served.get("/api/live", **KEY)["problem"] == "", "it is seen again")


def test_lsf_is_shown_and_acted_on(lsf: StandInLsf):
    with shown("lsf") as served:
        running = lsf.submit("-J", ATTACK, "-gpu", "num=8", "-W", "10", seconds=60.0)
        until(lambda: lsf.stats()[running] == "RUN", "it runs")
        waiting = [lsf.submit("-gpu", "num=8", "-W", "20", "-J", f"w{k}", seconds=30.0, user="bob") for k in range(3)]
        until(lambda: states(served).get(waiting[-1]) == "PENDING" and states(served)[running] == "RUNNING", "all are shown")
        until(lambda: lsf.stats()[waiting[0]] == "RUN" and states(served)[waiting[0]] == "RUNNING", "the second node is taken")
        seen, found = served.get("/api/live", **KEY), rows(served)
        assert (seen["busy"], seen["total"]) == (16.0, 24.0) and seen["title"] == "lsf"
        assert found[running]["name"] == ATTACK and found[running]["user"] == "ann" and found[running]["place"] in ("h1", "h2")
        assert served.get(f"/api/live/jobs/{found[waiting[1]]['number']}", **KEY)["detail"]["why"].startswith("wait")
        act(served, "top", waiting[2])
        assert lsf.queue() == [waiting[2], waiting[1]]
        act(served, "hold", waiting[1])
        until(lambda: rows(served)[waiting[1]]["reason"] == "it is held", "it is held")
        act(served, "release", waiting[1])
        act(served, "cancel", running)
        until(lambda: states(served)[running] == "GONE" and states(served)[waiting[2]] == "RUNNING", "it has ended, and another runs")
