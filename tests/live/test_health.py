"""Figures and health of a deployment."""

from __future__ import annotations

import pytest

from gpuyard.live.health import DeploymentFigures, health_of
from gpuyard.live.log import RotatedLog, last_record

RECORD = {
    "t": 1000.0, "cycle": 7, "mode": "order", "acts": True, "every": 10.0, "running": 4, "waiting": 40, "ineligible": 2, "out_of_order": 3,
    "left": 0, "updates": [(1, 2), (3, 4)], "failed": {}, "started": [("9", 12.5)], "seconds": {"read": 0.5, "act": 0.25},
}  # fmt: skip


def test_figures_are_text_that_prometheus_reads(tmp_path):
    figures = DeploymentFigures(tmp_path / "gpuyard.prom")
    figures.add(RECORD)
    figures.add({"t": 1010.0, "cycle": 8, "error": "squeue: no answer"})
    figures.add(RECORD)
    text = (tmp_path / "gpuyard.prom").read_text()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values["gpuyard_deploy_cycles_total"] == "3"
    assert values["gpuyard_deploy_errors_total"] == "1"
    assert values["gpuyard_deploy_updates_total"] == "4"
    assert values["gpuyard_deploy_waited_seconds_total"] == "25"
    assert values['gpuyard_deploy_cycle_seconds{step="read"}'] == "0.5"
    assert values['gpuyard_deploy_acting{mode="order"}'] == "1"
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    blocked = DeploymentFigures(tmp_path / "gpuyard.prom" / "x")
    blocked.add(RECORD)
    assert "gpuyard.prom" in blocked.problem


@pytest.mark.parametrize(
    ("change", "now", "words"),
    [
        ({}, 1020.0, None),
        ({}, 1061.0, "the last cycle is 61 s old"),
        ({}, 500.0, "the last cycle lies 500 s ahead: a clock was set"),
        ({"error": "squeue: no answer"}, 1001.0, "error: squeue: no answer"),
        ({"tripped": "jobs waited"}, 1001.0, "the site's own policy has returned: jobs waited"),
    ],
)
def test_health_is_judged_by_the_last_line(tmp_path, change, now, words):
    log = RotatedLog(tmp_path / "log.jsonl")
    log.add({"t": 1.0})
    log.add(RECORD | change)
    health = health_of(log.path, now)
    assert health.well == (words is None)
    assert health.words.startswith("order mode, acting, cycle 7")
    assert words is None or words in health.words


def test_nothing_logged_is_not_well(tmp_path):
    assert not health_of(tmp_path / "none.jsonl").well
    (tmp_path / "log.jsonl").write_text('{"t": 5}\n[1]\n{"t": ')
    assert last_record(tmp_path / "log.jsonl") == {"t": 5}
