"""Experiments from TOML: those that come with the package, and files that are wrong or hostile."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import DataError, GpuyardError, UnknownNameError, UsageError
from gpuyard.experiments.design.cells import Sources, cells_of, entries_of
from gpuyard.experiments.design.kinds import Context, Prepared
from gpuyard.experiments.design.spec import Experiment, from_table, load_experiment, parse_experiment, parse_seeds, shipped
from gpuyard.experiments.running.runner import checked
from gpuyard.traces.recipes import Episode

STUDIES = sorted(shipped())
Write = Callable[..., Path]


def prepared(experiment: Experiment) -> Prepared:
    return Prepared(Context(experiment.record()))


# ── those that come with the package ──


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", STUDIES)
def test_every_shipped_study_parses_and_survives_its_record(name: str, quick: bool) -> None:
    found = load_experiment(name, quick=quick)
    again = from_table(json.loads(json.dumps(found.record())), name)
    assert again == found
    assert again.digest == found.digest
    assert prepared(found).runs == len(prepared(found).units) * len(entries_of(found)) > 0


def test_the_studies_that_are_promised_are_there() -> None:
    assert {"core", "robustness", "ablation", "shift", "traces", "hosts"} <= set(STUDIES)


def test_quick_forms_are_shorter_and_others() -> None:
    for name in STUDIES:
        whole, quick = load_experiment(name), load_experiment(name, quick=True)
        assert whole.digest != quick.digest
        assert prepared(quick).runs < prepared(whole).runs


def test_core_has_3072_runs_of_48_regimes_8_schedulers_8_seeds() -> None:
    found = prepared(load_experiment("core"))
    assert (len(found.cells), len(found.entries), len(found.experiment.axes.seeds)) == (48, 8, 8)
    assert found.runs == 3072
    assert len({(c.parameters["shape"], c.parameters["intensity"], c.parameters["gpus"]) for c in found.cells}) == 48


def test_robustness_has_192_scenarios_for_each_workload() -> None:
    found = load_experiment("robustness")
    kinds = {change.partition(":")[0] for change in found.axes.changes if change}
    assert len(kinds) == 6
    for kind in kinds:
        assert [change for change in found.axes.changes if change.startswith(f"{kind}:")] == [f"{kind}:severity={k}" for k in (1, 2, 3, 4)]
    cells = [cell for cell in cells_of(found) if cell.change]
    workloads = {cell.workload for cell in cells}
    for workload in workloads:
        assert sum(cell.workload == workload for cell in cells) * len(found.axes.seeds) == 192
    parameters = [{cell.parameters[name] for cell in cells} for name in ("shape", "intensity", "gpus")]
    assert [len(values) for values in parameters] == [4, 3, 4]


TIMES = {"submit", "deadline", "index"}  # index: the place in the order of submits
CHANGED = {  # kind of change → what it changes of the jobs that are there with and without it
    "arrival-noise": {"index"},
    "phase-shift": TIMES,
    "burst": {"index"},
    "runtime-distortion": {"runtime"},
    "capacity-dips": set(),
    "slow-nodes": set(),
}
OF_CLUSTERS = ("capacity-dips", "slow-nodes")
OF_COUNTS = ("arrival-noise", "burst")


@pytest.mark.parametrize("shape", ["base", "bursty", "diurnal", "shifted_diurnal"])
@pytest.mark.parametrize("kind", list(CHANGED))
def test_each_change_of_robustness_really_changes_what_it_says_and_nothing_else(kind: str, shape: str) -> None:
    experiment = load_experiment("robustness")
    sources = Sources(experiment.axes.seeds)
    for gpus in ("2", "16"):
        cells = {cell.change: cell for cell in cells_of(experiment) if (cell.parameters["shape"], cell.parameters["gpus"]) == (shape, gpus)}
        for seed in (0, 7):
            plain, seen = sources.episode(cells[""], seed), set()
            for severity in (1, 2, 3, 4):
                found = sources.episode(cells[f"{kind}:severity={severity}"], seed)
                changed, jobs = differing(found, plain), found.workload.jobs
                assert changed <= CHANGED[kind]
                assert kind in (*OF_CLUSTERS, *OF_COUNTS) or changed & {"submit", "runtime"}
                assert (jobs.id.tolist() != plain.workload.jobs.id.tolist()) == (kind in OF_COUNTS or kind == "phase-shift")
                assert (found.cluster != plain.cluster) == (kind in OF_CLUSTERS)
                seen.add((jobs.submit.tobytes(), found.workload.runtime.tobytes(), repr(found.cluster.outages), repr(found.cluster.types)))
            assert len(seen) == 4, "two severities do the same"


def differing(found: Episode, plain: Episode) -> set[str]:
    """Names of columns of the same jobs that are not equal."""
    both = np.intersect1d(found.workload.jobs.id, plain.workload.jobs.id)
    rows = [np.argsort(each.workload.jobs.id)[np.isin(np.sort(each.workload.jobs.id), both)] for each in (found, plain)]
    ours, theirs = (episode.workload.jobs.table[at] for episode, at in zip((found, plain), rows, strict=True))
    names = {name for name in ours.dtype.names if not np.array_equal(ours[name], theirs[name], equal_nan=ours[name].dtype.kind == "f")}
    times = [episode.workload.runtime[at] for episode, at in zip((found, plain), rows, strict=True)]
    return names | (set() if np.array_equal(*times) else {"runtime"})


# ── bad input ──

BAD = {
    "unknown axis": (('seeds = "0-2"', 'seds = "1"\nseeds = "0-2"'), "small.toml.*seds.*did you mean 'seeds'"),
    "unknown key": (('title = "Small"', 'title = "Small"\ntittle = "x"'), "small.toml: unknown key 'tittle'.*title"),
    "unknown key in a table": (("[judge]", "[judge]\nbase = 'fcfs'"), r"small.toml: \[judge\]: unknown key 'base'"),
    "no title": (('title = "Small"', ""), "small.toml: title is missing"),
    "no seeds": (('seeds = "0-2"', ""), r"small.toml: \[axes\]: seeds is missing"),
    "empty seeds": (('seeds = "0-2"', 'seeds = ""'), "small.toml: the axis seeds is empty"),
    "empty schedulers": (('schedulers = ["fcfs", "shortest", "switch"]', "schedulers = []"), "small.toml: the axis schedulers is empty"),
    "seeds backwards": (('seeds = "0-2"', 'seeds = "5-2"'), "small.toml: seeds.*5-2.*not a seed or a range"),
    "negative seed": (('seeds = "0-2"', "seeds = [-1]"), "small.toml.*seeds has a seed that does not lie"),
    "seed of a wrong type": (('seeds = "0-2"', "seeds = [1.5]"), "small.toml.*seeds is not a list of whole numbers"),
    "too many seeds": (('seeds = "0-2"', 'seeds = "0-99999,200000-299999"'), "small.toml: seeds.*more than 100,000 seeds"),
    "a seed beyond all": (('seeds = "0-2"', 'seeds = "9223372036854775808"'), "small.toml: seeds"),
    "twice": (('"shortest", "switch"]', '"shortest", "fcfs"]'), "small.toml: schedulers: 'fcfs' is given twice"),
    "a number as a name": (('"shortest", "switch"]', "1]"), "small.toml.*schedulers is not a list of texts"),
    "control character": (('"shortest", "switch"]', '"short\\u0007est"]'), "small.toml.*schedulers has a control character"),
    "far too long": (('"shortest", "switch"]', f'"{"x" * 10_001}"]'), "small.toml.*schedulers has a text that is longer"),
    "unknown baseline": (("[judge]", '[judge]\nbaseline = "sfj"'), r"small.toml: \[judge\] baseline.*'sfj'"),
    "unknown challenger": (('challengers = ["shortest"]', 'challengers = ["short"]'), r"\[judge\] challengers.*'short'.*'shortest'"),
    "unknown oracle": (('oracle = ["fcfs", "shortest"]', 'oracle = ["edf"]'), r"small.toml: \[judge\] oracle.*'edf'"),
    "unknown in examples": (('schedulers = ["shortest"]', 'schedulers = ["edf"]'), r"small.toml: \[\[examples\]\].*'edf'"),
    "unknown objective": (('["slowdown", "balanced"]', '["slowdwn"]'), r"small.toml: \[axes\] objectives.*'slowdwn'.*'slowdown'"),
    "an objective of the clock": (
        ('["slowdown", "balanced"]', '["decision_latency"]'),
        r"small.toml: \[axes\] objectives: decision_latency",
    ),
    "unknown metric": (('["wait", "utilization"]', '["wiat"]'), r"small.toml: \[judge\] metrics.*'wiat'.*'wait'"),
    "a name of several words": (("[names]", '[names]\n"a b" = "fcfs"'), r"small.toml: \[names\]: 'a b'"),
    "an agent outside the folder": (
        ("[judge]", '[agents."../../x"]\nenv = "Switch"\nlearner = "d3qn"\nworkloads = ["demo"]\nsteps = "1k"\n[judge]'),
        r"small.toml: \[agents\]: '../../x' is not a valid name of an agent",
    ),
    "an agent that is a name": (
        ("[judge]", '[agents.busy]\nenv = "Switch"\nlearner = "d3qn"\nworkloads = ["demo"]\nsteps = "1k"\n[judge]'),
        "small.toml: 'busy' is both an agent and a name",
    ),
    "an agent without seeds": (
        ("[judge]", '[agents.a]\nenv = "Switch"\nlearner = "d3qn"\nworkloads = ["demo"]\nsteps = "1k"\nseeds = []\n[judge]'),
        r"small.toml: \[agents.a\]: seeds is empty",
    ),
    "a name that leads elsewhere": (('title = "Small"', 'title = "Small"\nname = "../elsewhere"'), "small.toml: name = '../elsewhere'"),
    "no time": (("[judge]", '[rules]\ncheckpoint = "soon"\n[judge]'), r"small.toml: \[rules\]: checkpoint"),
    "nan": (("[judge]", "[settings]\nx = nan\n[judge]"), r"small.toml: \[settings\]: x.*not a finite number"),
    "a table that is none": (("[judge]", "[rules]\n[judge]\n[[agents]]\n[x]"), "small.toml"),
    "no TOML": (("[judge]", "[judge"), "small.toml: not TOML"),
    "an unknown hole": (('busy = "demo:jobs=40', 'busy = "demo:jobs=${jobs}'), "value in .*small.toml 'jobs'"),
}


@pytest.mark.parametrize("what", list(BAD))
def test_a_bad_file_is_refused_with_its_name_and_the_key(what: str, small_file: Write) -> None:
    change, message = BAD[what]
    with pytest.raises(GpuyardError, match=message) as raised:
        load_experiment(str(small_file(change)))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1000


WRONG = {  # what is known only when the axes are looked at
    "unknown kind": (('title = "Small"', 'title = "Small"\nkind = "simulation"'), "kind of experiment 'simulation'.*simulations"),
    "unknown scheduler": (('shortest = "sjf/first/easy"', 'shortest = "sfj"'), "small: scheduler 'shortest'.*'sfj'"),
    "missing checkpoint": (('shortest = "sjf/first/easy"', 'shortest = "learned:nobody"'), "small: scheduler 'shortest'.*nobody"),
    "missing checkpoint file": (('shortest = "sjf/first/easy"', 'shortest = "no/such.safetensors"'), "small: scheduler 'shortest'.*such"),
    "unknown workload": (('busy = "demo:jobs=40 on 1x8:a100"', 'busy = "no-such.swf on 8"'), "small: workload 'busy'.*no-such.swf"),
    "unknown parameter": (
        ("intensity=high,gpus=4 on 1x{gpus}", "intensty=high,gpus=4 on 1x{gpus}"),
        r"small: \[axes\] workloads.*intensty",
    ),
    "unknown value": (("shape=base|bursty", "shape=base|brusty"), r"small: \[axes\] workloads.*brusty"),
    "no cluster": (("demo:jobs=40 on 1x8:a100", "demo:jobs=40 on nowhere.toml"), r"small: \[axes\] workloads.*nowhere"),
    "twice by alternatives": (("shape=base|bursty", "shape=base|base"), "is there twice"),
    "a weight": (('busy = "demo', 'busy = "3*demo'), r"small: \[axes\] workloads.*weight"),
    "clusters for nobody": (('seeds = "0-2"', 'clusters = ["8"]\nseeds = "0-2"'), r"small: \[axes\] clusters"),
    "unknown change": (('seeds = "0-2"', 'changes = ["bursts"]\nseeds = "0-2"'), r"small: \[axes\] changes.*'bursts'.*'burst'"),
    "a change with more in it": (('seeds = "0-2"', 'changes = ["burst]; jobs=3"]\nseeds = "0-2"'), r"small: \[axes\] changes"),
    "unknown estimate": (('seeds = "0-2"', 'estimates = ["exactly"]\nseeds = "0-2"'), r"small: \[axes\] estimates.*'exactly'.*'exact'"),
    "unknown curve": (('"cdf.wait"', '"cfd.wait"'), "small: curves.*'cfd'"),
    "curve of no jobs": (('"cdf.wait"', '"cdf.makespan"'), "small: curves.*makespan has no value for each job"),
    "curve of no group": (('"box.user.slowdown"', '"box.usr.slowdown"'), "small: curves.*'usr'"),
    "a curve with more in it": (('"queue"', '"queue.x"'), "small: curves.*queue.x"),
    "unknown group": (('groups = ["shape"]', 'groups = ["shap"]'), r"small: \[judge\] groups:.*'shap'.*'shape'"),
    "settings of no use": (("[judge]", "[settings]\njobs = 3\n[judge]"), r"small: \[settings\]"),
    "example of nothing": (('workload = "family:shape=bursty,', 'workload = "famly:shape=bursty,'), r"small: \[\[examples\]\] #1"),
    "agent of no kind": (
        ("[judge]", '[agents.a]\nenv = "Swich"\nlearner = "d3qn"\nworkloads = ["demo"]\nsteps = "1k"\n[judge]'),
        None,
    ),
}


@pytest.mark.parametrize("what", list(WRONG))
def test_what_is_wrong_is_found_before_anything_is_run(what: str, small_file: Write, tmp_path: Path) -> None:
    change, message = WRONG[what]
    changes = [change]
    if what == "agent of no kind":
        changes.append(('"shortest", "switch"]', '"shortest", "switch", "a"]'))
        message = r"small: \[agents.a\].*'Swich'.*'Switch'"
    with pytest.raises(GpuyardError, match=message) as raised:
        checked(load_experiment(str(small_file(*changes))))
    assert "\n" not in str(raised.value)


def test_files_that_are_no_experiments(tmp_path: Path) -> None:
    large, binary, deep = tmp_path / "large.toml", tmp_path / "binary.toml", tmp_path / "deep.toml"
    large.write_bytes(b"#" * 1_000_001)
    binary.write_bytes(b"\xff\xfe\x00")
    deep.write_text("x = " + "[" * 5000 + "]" * 5000)
    (tmp_path / "folder.toml").mkdir()
    for path in (large, binary, deep, tmp_path / "folder.toml", tmp_path / "absent.toml", Path("~no-such-user/x.toml")):
        with pytest.raises(DataError, match=path.name):
            load_experiment(str(path))
    with pytest.raises(UnknownNameError, match="unknown experiment 'croe'.*'core'"):
        load_experiment("croe")
    with pytest.raises(DataError, match="nested more than 8 levels deep"):
        parse_experiment("title.a.b.c.d.e.f.g.h.i.j = 1", "x.toml")


def test_the_name_of_a_file_becomes_that_of_a_folder(small_file: Write) -> None:
    assert load_experiment(str(small_file())).name == "small"
    for file in ("my study.toml", "..toml", "a;b.toml", "-x.toml"):
        name = load_experiment(str(small_file(name=file))).name
        assert "/" not in name
        assert not name.startswith((".", "-"))


def test_a_quick_form_must_be_there(small_file: Write) -> None:
    assert load_experiment(str(small_file()), quick=True).axes.seeds == (0,)
    with pytest.raises(UsageError, match="no quick form"):
        load_experiment(str(small_file(('[quick.axes]\nseeds = "0"', ""))), quick=True)


def test_values_fill_holes(small_file: Write) -> None:
    path = small_file(('busy = "demo:jobs=40', 'busy = "demo:jobs=${jobs}'), ("[judge]", '[values]\njobs = "40"\n[judge]'))
    assert load_experiment(str(path)).names["busy"] == "demo:jobs=40 on 1x8:a100"
    assert load_experiment(str(path), values={"jobs": "50"}).names["busy"] == "demo:jobs=50 on 1x8:a100"
    with pytest.raises(UnknownNameError, match="'job'.*'jobs'"):
        load_experiment(str(path), values={"job": "50"})


@pytest.mark.parametrize(
    "axes",
    [
        {"seeds": tuple(range(100_000)), "changes": tuple(f"load:{k}" for k in range(1, 1000))},
        {"changes": tuple(f"load:{k}" for k in range(1, 2000)), "estimates": tuple(f"noisy:{k}" for k in range(1, 2000))},
        {"workloads": tuple(f"demo:jobs={'|'.join(map(str, range(10, 310)))},days={k}" for k in range(1, 2000)), "clusters": ("1x8:a100",)},
        {"workloads": ("demo:jobs=" + "|".join(map(str, range(10, 1010))) + ",days=" + "|".join(map(str, range(1, 1002))),)},
    ],
)
def test_a_product_that_is_far_too_large_is_refused_without_being_made(axes: dict[str, tuple[str, ...]], small: str) -> None:
    experiment = parse_experiment(small, "small.toml")
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="at most 10,000,000|at most 100,000"):
            prepared(replace(experiment, axes=replace(experiment.axes, **axes)))
        assert tracemalloc.get_traced_memory()[1] < 300e6
    finally:
        tracemalloc.stop()


def test_seeds() -> None:
    assert parse_seeds("42, 3-5,4–6", "seeds") == (42, 3, 4, 5, 6)
    assert parse_seeds("", "seeds") == ()
    for text in ("a", "1-", "-1", "1--2", "3-1", "1.5", "99999999999999999999"):
        with pytest.raises(UsageError, match="seeds"):
            parse_seeds(text, "seeds")
