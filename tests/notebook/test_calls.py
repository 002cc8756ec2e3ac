"""Python as people write it: texts, names, paths and plain functions stand wherever the objects do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpuyard as gy
from gpuyard.engine.simulation import simulate as engine_simulate
from gpuyard.errors import GpuyardError, WrongTypeError
from gpuyard.policies import ORDERINGS, make_ordering

WORK, CLUSTER = "demo:jobs=80", "1x32:a100"


def widest(jobs, j, now):
    """Wide jobs first."""
    return -jobs.gpus[j]


def emptiest(nodes, n, jobs, j):
    """The emptiest node first."""
    return -nodes.free[n]


def important(jobs, j, now):
    """The more important stop the less important."""
    return -jobs.priority[j]


class Fifo:
    """Starts waiting jobs in order, as long as they fit on free GPUs; remembers how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def decide(self, snapshot: gy.Snapshot) -> list[gy.Decision]:
        self.asked += 1
        free, started = int(snapshot.free_gpus().sum()), []
        for row in snapshot.waiting.tolist():
            free -= int(snapshot.jobs.gpus[row])
            if free < 0:
                break
            started.append(gy.Decision(int(snapshot.jobs.index[row]), gy.Action.START))
        return started


@pytest.fixture(scope="module")
def expected() -> gy.Result:
    return engine_simulate(gy.load_workload(WORK), gy.load_cluster(CLUSTER), gy.parse_scheduler("sjf/fewest/easy"), segments=True)


def test_simulate_takes_texts(expected):
    assert gy.simulate(WORK, CLUSTER, "sjf/fewest/easy").same_bytes(expected)


def test_simulate_takes_paths(tmp_path, expected):
    from gpuyard.traces import write_csv

    write_csv(expected.workload, tmp_path / "jobs.csv")
    (tmp_path / "lab.toml").write_text("[[nodes]]\ngpus = 32\ntype = 'a100'\n")
    assert gy.simulate(tmp_path / "jobs.csv", tmp_path / "lab.toml", "sjf/fewest/easy").same_bytes(expected)


def test_a_large_run_keeps_what_is_drawn_only_if_told_to(monkeypatch, expected):
    monkeypatch.setattr("gpuyard.notebook.calls.MOST_DRAWN", len(expected) - 1)
    assert not len(gy.simulate(WORK, CLUSTER, "sjf/fewest/easy").segments)
    assert gy.simulate(WORK, CLUSTER, "sjf/fewest/easy", segments=True).same_bytes(expected)


def test_the_seed_makes_the_workload_too():
    assert gy.simulate(WORK, CLUSTER, "fcfs", seed=3).workload == gy.load_workload(WORK, 3)


def test_simulate_many_takes_texts(expected):
    results = gy.simulate_many(WORK, CLUSTER, ["fcfs", "sjf/fewest/easy"])
    assert results[1].same_bytes(expected)
    assert results[0].scheduler == "fcfs"


def test_a_plain_function_is_an_ordering():
    assert gy.simulate(WORK, CLUSTER, widest).same_bytes(gy.simulate(WORK, CLUSTER, gy.Scheduler(ordering=make_ordering(widest, "widest"))))


def test_slots_take_functions_names_and_policies():
    made = gy.Scheduler(ordering=widest, placement=emptiest, backfill="easy:depth=5", preemption=important)
    assert made.label == "widest/emptiest/easy:depth=5/important"
    assert gy.Scheduler("sjf", backfill="easy") == gy.parse_scheduler("sjf/fewest/easy")
    assert gy.Scheduler() == gy.parse_scheduler("fcfs")
    assert gy.Scheduler(ORDERINGS["saf"]).label == "saf"


def test_a_function_registered_under_a_name_keeps_it(monkeypatch):
    monkeypatch.setattr(ORDERINGS, "_things", dict(ORDERINGS.items()))
    named = gy.ordering("my-widest")(widest)
    assert gy.Scheduler(ordering=named, backfill="easy").label == "my-widest/fewest/easy"


def test_a_cell_of_a_notebook_can_be_run_again(monkeypatch):
    monkeypatch.setattr(ORDERINGS, "_things", dict(ORDERINGS.items()))

    def cell(sign):
        def rule(jobs, j, now):
            return sign * jobs.gpus[j]

        rule.__module__ = "__main__"
        return gy.ordering("mine")(rule)

    results = [gy.simulate(WORK, CLUSTER, gy.Scheduler(cell(sign))) for sign in (1.0, -1.0)]
    assert not results[0].same_bytes(results[1])
    assert gy.Scheduler("mine").label == "mine"
    with pytest.raises(ValueError, match="ordering 'mine' is registered twice"):
        gy.ordering("mine")(widest)


def test_a_lambda_has_a_readable_name():
    assert gy.Scheduler(lambda jobs, j, now: jobs.gpus[j]).label == "lambda"


def test_an_object_that_decides_is_asked_itself(expected):
    mine = Fifo()
    result = gy.simulate(expected.workload, expected.cluster, mine)
    assert mine.asked > 0
    assert np.isfinite(result.table["end"]).all()
    assert gy.simulate(expected.workload, expected.cluster, Fifo).same_bytes(result)  # the class is made


def test_compare_takes_a_list_of_anything():
    found = gy.compare(["fcfs", gy.Scheduler(widest, backfill="easy"), Fifo], WORK, CLUSTER, seeds=2)
    assert [line.scheduler for line in found.lines] == ["fcfs", "widest/fewest/easy", "Fifo"]
    assert found.seeds == (0, 1)
    assert found.table.baseline == "fcfs"
    assert found.lines[0].values["bsld"].mean == pytest.approx(
        np.mean([gy.measure(gy.simulate(WORK, CLUSTER, "fcfs", seed=seed), "bsld") for seed in (0, 1)])
    )


def test_compare_gives_every_simulation_a_copy_of_an_object_that_decides():
    mine = Fifo()
    found = gy.compare([mine, "fcfs"], WORK, CLUSTER, seeds=2, metrics="wait")
    assert mine.asked == 0
    assert (
        found.lines[0].values["wait"].mean
        == gy.compare([Fifo, "fcfs"], WORK, CLUSTER, seeds=2, metrics="wait").lines[0].values["wait"].mean
    )


def test_compare_of_a_workload_is_one_sample(expected):
    found = gy.compare(
        ["fcfs", "sjf/fewest/easy"], expected.workload, expected.cluster, metrics=["wait", "bsld"], baseline="sjf/fewest/easy"
    )
    assert found.table.baseline == "sjf/fewest/easy"
    assert found.table.line("sjf/fewest/easy").values["wait"].mean == pytest.approx(gy.measure(expected, "wait"))


def test_measure_of_one_name_is_a_number(expected):
    assert gy.measure(expected, "bsld") == gy.measure(expected, ["bsld"])["bsld"]
    assert gy.measure_by(expected, "bsld", by="user") == gy.measure_by(expected, ["bsld"], by="user")


def test_a_cluster_may_be_that_of_the_workload(shared):
    log = gy.load_workload(str(next((shared / "traces").rglob("*.swf*")))).head(50)
    assert gy.simulate(log, None, "fcfs").cluster.gpus > 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: gy.simulate(3, CLUSTER, "fcfs"), "workload: expected a Workload, or a text such as 'demo' or 'log.swf.gz', got int 3"),
        (lambda: gy.simulate({"submit": [1]}, CLUSTER, "fcfs"), "got dict; hint: Workload.from_frame"),
        (lambda: gy.simulate(WORK, 16, "fcfs"), "cluster: expected a Cluster, or a text such as '16x8:a100', a preset or a .toml file"),
        (lambda: gy.simulate(WORK, CLUSTER, 5), "scheduler: expected a text such as 'sjf/fewest/easy', a Scheduler, an ordering function"),
        (lambda: gy.simulate(WORK, CLUSTER, "fcfs", rules={"checkpoint": 5}), "rules: expected Rules(…), got dict"),
        (lambda: gy.simulate_many(WORK, CLUSTER, "fcfs"), "schedulers: expected a list of them, got str 'fcfs'; hint: put it in brackets"),
        (lambda: gy.compare("fcfs"), "schedulers: expected a list of them"),
        (lambda: gy.Scheduler(3), "expected a name such as fcfs, lcfs, sjf, ljf, a function (jobs, j, now) or an Ordering, got int 3"),
        (lambda: gy.Scheduler(backfill=widest), "expected a name such as none, skip, easy, conservative or a Backfill, got function"),
        (lambda: gy.measure("demo", "bsld"), "measure: expected a Result, got str 'demo'; hint: simulate("),
        (lambda: gy.measure(gy.simulate(WORK, CLUSTER, "fcfs"), 3), "metrics: expected the name of a metric, or a list of them, got int 3"),
        (lambda: gy.Simulation(WORK, CLUSTER), "workload: expected a Workload, got str 'demo:jobs=80'; hint: load_workload("),
    ],
)  # fmt: skip
def test_type_errors_say_what_was_expected(call, says):
    with pytest.raises(WrongTypeError) as caught:
        call()
    assert says in str(caught.value)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, GpuyardError)


def test_a_function_for_another_slot_says_what_is_wrong():
    with pytest.raises(GpuyardError, match=r"test_calls\.py:\d+ widest: takes 3 arguments, 4 are given"):
        gy.Scheduler(placement=widest)


def test_the_import_loads_nothing_of_weight():
    program = (
        "import sys, gpuyard\n"
        "heavy = {'numpy', 'numba', 'polars', 'pandas', 'matplotlib', 'plotly', 'scipy', 'gpuyard.notebook'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_simulation_loads_no_frame_and_no_figure_library():
    program = (
        "import sys, gpuyard as gy\n"
        f"result = gy.simulate({WORK!r}, {CLUSTER!r}, 'sjf/fewest/easy')\nprint(gy.measure(result, 'bsld') > 0, repr(result) != '')\n"
        "print(sorted({'polars', 'pandas', 'matplotlib', 'plotly', 'jax'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "True True\n[]\n"


def test_the_door_upwards_is_the_only_one():
    core = Path(gy.__file__).parent
    rooms = ("model", "engine", "features", "networks", "policies", "metrics", "traces")
    opened = [str(path) for room in rooms for path in (core / room).rglob("*.py") if "gpuyard.notebook" in path.read_text(encoding="utf-8")]
    assert opened == []
