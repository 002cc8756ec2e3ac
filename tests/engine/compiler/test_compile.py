"""How a plain function becomes a compiled policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpuyard import Workload, load_workload, simulate
from gpuyard.engine.compiler.compile import compile_keys, compile_switch, parameters_of, place_of
from gpuyard.engine.compiler.shown import JOB_PARTS, JOBS, TRUSTED_JOBS
from gpuyard.engine.memory import DTYPES
from gpuyard.engine.state import PARAMS, VISIBLE_NAMES, VISIBLE_ROW, State
from gpuyard.errors import PolicyError
from gpuyard.model.cluster import Cluster
from gpuyard.policies import BACKFILLS, PLACEMENTS, PREEMPTIONS, Scheduler, make_ordering, make_placement


def shortest(jobs: Any, j: int, now: float, a: float = 1.0, b: int = 2) -> Any:
    return jobs.estimate[j] * a + b


def scheduler(function: Any) -> Scheduler:
    return Scheduler(make_ordering(function, "mine"), PLACEMENTS["first"], BACKFILLS["none"], PREEMPTIONS["none"])


def test_the_same_function_is_compiled_once():
    assert compile_keys(shortest, 2) == compile_keys(shortest, 2) != 0


def test_parameters_and_their_defaults():
    assert parameters_of(shortest, 3) == {"a": 1.0, "b": 2.0}
    assert parameters_of(lambda system, now: 0, 2) == {}


def test_where_a_function_stands():
    assert place_of(shortest).startswith(__file__)
    assert place_of(shortest).endswith("shortest")


def test_what_is_hidden_is_not_in_the_type_that_policies_are_compiled_against():
    hidden = {name for part in JOB_PARTS for name in part.names or ()} - set(VISIBLE_NAMES)
    assert {"id", "overrun", "number"} <= hidden
    for shown in (JOBS, TRUSTED_JOBS):
        assert set(shown.place) == set(VISIBLE_NAMES)
        assert all(JOB_PARTS[place][name] == VISIBLE_ROW[name] for name, place in shown.place.items())


@pytest.mark.parametrize("name", ["runtime", "end", "overrun", "id"])
def test_a_rule_that_reads_what_is_hidden_does_not_compile(name: str):
    source = f"def rule(jobs, j, now):\n    return jobs.{name}[j]\n"
    space: dict[str, Any] = {"__name__": "test"}
    exec(source, space)  # noqa: S102 - the text is two lines up
    with pytest.raises(PolicyError, match=name):
        compile_keys(space["rule"], 0)


def test_every_array_of_the_state_has_a_type():
    assert set(DTYPES) == set(State._fields)


@pytest.mark.parametrize("kind", sorted({str(VISIBLE_ROW[name]) for name in VISIBLE_NAMES}))
def test_every_visible_column_can_be_read(kind: str):
    """One rule for all columns of a type, as each compilation takes half a second; a column that cannot be read is named in the error."""
    columns = [name for name in VISIBLE_NAMES if str(VISIBLE_ROW[name]) == kind]
    lines = [f"    if now < {at}:\n        return jobs.{name}[j]\n" for at, name in enumerate(columns)]
    space: dict[str, Any] = {"__name__": "test"}
    exec(f"def rule(jobs, j, now):\n{''.join(lines)}    return jobs.{columns[0]}[j]\n", space)  # noqa: S102 - the text is in this line
    assert compile_keys(space["rule"], 0) != 0


def test_as_many_parameters_as_there_is_room_for():
    def full(jobs: Any, j: int, now: float, a: float = 1, b: float = 2, c: float = 3, d: float = 4, e: float = 5, f: float = 6) -> Any:
        return jobs.submit[j] * (a + 10 * b + 100 * c + 1000 * d + 1e4 * e + 1e5 * f)

    assert len(parameters_of(full, 3)) <= PARAMS
    assert compile_keys(full, 6) != 0


def test_whole_numbers_and_truth_values_are_numbers_too():
    workload = Workload.build({"submit": [0, 0, 0], "gpus": [1, 1, 1], "priority": [1, 3, 2]}, [5, 5, 5])
    by_int = simulate(workload, Cluster.uniform(1, 1), scheduler(lambda jobs, j, now: jobs.index[j]))
    assert by_int.table["start"].tolist() == [0, 5, 10]
    by_bool = simulate(workload, Cluster.uniform(1, 1), scheduler(lambda jobs, j, now: jobs.priority[j] < 2.5))
    assert by_bool.table["start"].tolist() == [5, 0, 10]


def test_a_closure_over_a_number():
    factor = -1.0
    workload = Workload.build({"submit": [0, 0], "estimate": [1, 2]}, [5, 5])
    result = simulate(workload, Cluster.uniform(1, 1), scheduler(lambda jobs, j, now: factor * jobs.estimate[j]))
    assert result.table["start"].tolist() == [5, 0]


def test_division_by_zero_is_infinite_as_in_numpy():
    workload = Workload.build({"submit": [0, 0], "priority": [0, 1]}, [5, 5])
    result = simulate(workload, Cluster.uniform(1, 1), scheduler(lambda jobs, j, now: 1.0 / jobs.priority[j]))
    assert result.table["start"].tolist() == [5, 0]


def test_a_placement_may_read_the_job():
    own = make_placement(lambda nodes, n, jobs, j: -nodes.free[n] if jobs.gpus[j] > 1 else nodes.free[n], "mine")
    made = Scheduler(make_ordering(shortest, "s"), own, BACKFILLS["none"], PREEMPTIONS["none"])
    workload = Workload.build({"submit": [0, 1, 2], "gpus": [1, 2, 1]}, [50, 50, 50])
    assert simulate(workload, Cluster.uniform(2, 4), made).table["node"].tolist() == [0, 1, 1]


@pytest.mark.parametrize("nodes", [20, 200, 5000])  # in one word of the index of free nodes, in several, in several blocks of words
def test_a_placement_of_ones_own_chooses_as_the_same_built_in(nodes: int):
    workload = load_workload(f"gangs:jobs=2000,nodes={nodes},gpus_per_node=8,load=1.0,spread=0.5")
    cluster = Cluster.uniform(nodes, 8)
    built_in, own = (
        simulate(workload, cluster, Scheduler(make_ordering(shortest, "s"), placement, BACKFILLS["none"], PREEMPTIONS["none"])).table
        for placement in (PLACEMENTS["best"], make_placement(lambda nodes, n, jobs, j: nodes.free[n], "mine"))
    )
    assert own["node"].tolist() == built_in["node"].tolist()
    assert own["start"].tolist() == built_in["start"].tolist()


@pytest.mark.parametrize("which", [0, 7, 39])
def test_a_score_that_is_no_number_is_an_error_whichever_node_has_it(which: int):
    own = make_placement(lambda nodes, n, jobs, j: np.nan if n == which else 0.0, "mine")
    made = Scheduler(make_ordering(shortest, "s"), own, BACKFILLS["none"], PREEMPTIONS["none"])
    with pytest.raises(PolicyError, match=r"the placement raised an error or returned NaN for job \d+ at 3 s"):
        simulate(Workload.build({"submit": [3.0], "gpus": [2]}, [50.0]), Cluster.uniform(40, 4), made)


def test_a_switch_rule_is_compiled():
    assert compile_switch(lambda system, now: 1 if system.free > 2 else 0, 0) != 0


def test_keys_may_be_infinite():
    workload = Workload.build({"submit": [0, 0, 0], "deadline": [np.inf, 5, np.inf]}, [5, 5, 5])
    result = simulate(workload, Cluster.uniform(1, 1), scheduler(lambda jobs, j, now: jobs.deadline[j]))
    assert result.table["start"].tolist() == [5, 0, 10]
