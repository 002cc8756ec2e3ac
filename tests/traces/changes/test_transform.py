"""Applying transforms by text: what every one of them keeps, and what is refused. A new transform is tested as soon as it is registered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard import parse_scheduler, simulate
from gpuyard.errors import DataError, UsageError
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.jobs import Jobs
from gpuyard.model.workload import Workload
from gpuyard.testing.strategies import Case, cases
from gpuyard.traces import CLUSTER_TRANSFORMS, TRANSFORMS, apply, apply_all, apply_all_to_cluster, apply_to_cluster, load_workload
from gpuyard.traces.changes.transform import check_transform

GIVEN = {
    "window": "window:start=1h,end=2d",
    "first": "first:100",
    "only": "only:user=u1|u2",
    "load": "load:target=0.5,gpus=128",
    "pool": "pool:8",
}
# Labels that a transform is there to change.
FREE_LABELS = {"preemptible": ("term_texts",), "kill-once": ("term_texts",), "pool": ("gpu_types",)}


def sample() -> Workload:
    made = load_workload("demo:jobs=600", 4)
    start = made.jobs.submit + 5.0
    return Workload(made.jobs, made.runtime, "log.swf", made.estimate_source, {"no run time": 2}, start, ("a note",), (), "16x8:a100")


def text_of(name: str) -> str:
    return GIVEN.get(name, name)


COPYING = ("arrival-noise", "burst")  # these add copies of jobs, with ids of their own


def by_id(workload: Workload, column: str, most: float = np.inf) -> dict[int, float]:
    values = zip(workload.jobs.id.tolist(), getattr(workload.jobs, column).tolist(), strict=True)
    return {job: value for job, value in values if job <= most}


@pytest.mark.parametrize("name", list(TRANSFORMS))
def test_every_transform_keeps_what_makes_a_workload(name: str) -> None:
    before = sample()
    after = apply(before, text_of(name), 3)
    jobs = after.jobs
    most = before.jobs.id.max()
    assert len(after) > 0
    assert len(after) <= len(before) or name in COPYING
    assert (np.diff(jobs.submit) >= 0).all()
    assert jobs.submit[0] >= 0
    assert jobs.index.tolist() == list(range(len(after)))
    assert len(set(jobs.id.tolist())) == len(after)
    assert set(jobs.id[jobs.id <= most].tolist()) <= set(before.jobs.id.tolist())
    assert (jobs.id > most).any() == (name in COPYING)
    assert len(after.runtime) == len(after)
    assert (after.runtime >= 0).all()
    free = dict.fromkeys(("users", *FREE_LABELS.get(name, ())), ())
    assert {**jobs.labels, **free} == {**before.jobs.labels, **free}
    for column in {"gpus", "job_class", "chunk", "priority"} - ({"chunk"} if name == "pool" else set()):
        assert by_id(after, column, most).items() <= by_id(before, column).items()
    names = [{job: work.jobs.users[user] for job, user in by_id(work, "user", most).items()} for work in (after, before)]
    assert names[0].items() <= names[1].items()


@pytest.mark.parametrize("name", list(TRANSFORMS))
def test_every_transform_changes_the_workload_and_says_so(name: str) -> None:
    before = sample()
    text = text_of(name)
    after = apply(before, text, 3)
    same_jobs = after.jobs == before.jobs and after.runtime.tobytes() == before.runtime.tobytes()
    assert not same_jobs
    assert after.name == f"log.swf+{text}"
    assert after.notes[0] == "a note"
    assert after.notes[-1] == f"{text} was applied" + (" with seed 3" if TRANSFORMS[name].random else "")
    assert (after.dropped, after.preset) == (before.dropped, before.preset)
    if not set(zip(after.jobs.id, after.jobs.submit, after.runtime, strict=True)) <= set(
        zip(before.jobs.id, before.jobs.submit, before.runtime, strict=True)
    ) or name in ("thin", "only", "pool"):
        assert after.logged_start is None
    else:
        assert after.logged_start is not None
        np.testing.assert_array_equal(after.logged_start, after.jobs.submit + 5.0)


@pytest.mark.parametrize("name", list(TRANSFORMS))
def test_a_transform_depends_on_the_seed_if_it_says_so(name: str) -> None:
    text = text_of(name)
    first, again, other = (apply(sample(), text, seed) for seed in (3, 3, 4))
    assert first == again
    differs = first.jobs != other.jobs or first.runtime.tobytes() != other.runtime.tobytes()
    assert differs == TRANSFORMS[name].random


@pytest.mark.parametrize("name", [*TRANSFORMS, *CLUSTER_TRANSFORMS])
def test_every_transform_is_described(name: str) -> None:
    found = check_transform(text_of(name))
    assert found.title
    assert (found.function.__doc__ or "").strip()
    assert found.parameters
    assert all(p.textual for p in found.parameters)


@pytest.mark.parametrize("name", list(CLUSTER_TRANSFORMS))
def test_every_transform_of_clusters(name: str) -> None:
    cluster, workload = load_cluster("4x8:a100"), sample()
    first, again, other = (apply_to_cluster(cluster, name, workload, seed) for seed in (3, 3, 4))
    assert first == again
    assert first != cluster
    assert ((first.outages, first.nodes) != (other.outages, other.nodes)) == CLUSTER_TRANSFORMS[name].random
    assert first.name == f"4x8:a100+{name}"


def test_several_in_their_order() -> None:
    texts = ["first:50", "capacity-dips:dips=2", "stretch:3"]
    made = apply_all(sample(), texts, 1)
    assert made.name == "log.swf+first:50+stretch:3"
    assert len(made) == 50
    cluster = apply_all_to_cluster(load_cluster("2x8:a100"), texts, made, 1)
    assert cluster.name == "2x8:a100+capacity-dips:dips=2"
    assert len({outage.start for outage in cluster.outages}) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("thn", "did you mean 'thin'?"),
        ("thin:kep=0.1", "did you mean 'keep'?"),
        ("thin:0", "keep = 0"),
        ("thin:1.5", "keep = 1.5"),
        ("thin:by=moon", "value of transform thin: by"),
        ("window:start=2h,end=1h", "is not an interval"),
        ("first:0", "at least 1"),
        ("batch:0", "at least 1"),
        ("only", "give user, partition, account or qos"),
        ("only:user=u99", "unknown user of log.swf 'u99'"),
        ("stretch:0", "factor = 0"),
        ("load:0", "load = 0"),
        ("load:gpus=2,cores=-1", "cores = -1"),
        ("runtimes:-1", "factor = -1"),
        ("preemptible:writing=0.02", "writing = 0.02"),
        ("preemptible:writing=0.02,checkpoint=600,cost=12", "writing = 0.02"),
        ("arrival-noise:0", "severity = 0"),
        ("arrival-noise:severity=5", "does not lie in 1..4"),
        ("arrival-noise:share=-1", "share = -1"),
        ("runtime-distortion:spread=9", "spread = 9"),
        ("phase-shift:shift=2d,period=1d", "changes nothing"),
        ("burst:factor=1", "factor = 1"),
        ("burst:share=0", "share = 0"),
        ("burst:factor=1e6", "factor = 1e+06"),
        ("arrival-noise:window=1e-9", "allowed are 1 to 20,000,000"),
        ("estimate-noise:bias=0", "bias = 0"),
        ("capacity-dips:depth=2", "unknown transform 'capacity-dips'"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        apply(sample(), text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("capacity-dips:depth=2", "depth = 2"),
        ("capacity-dips:dips=0", "0 dips"),
        ("capacity-dips:duration=9d", "does not fit"),
        ("slow-nodes:factor=1", "factor = 1"),
        ("slow-nodes:share=0", "share = 0"),
        ("slow-nodes:5", "does not lie in 1..4"),
    ],
)
def test_what_is_refused_of_clusters(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        apply_to_cluster(Cluster.uniform(2, 8), text, sample())


def test_unknown_names_among_several() -> None:
    with pytest.raises(UsageError, match="did you mean 'capacity-dips'"):
        apply_all(sample(), ["capacity-dip"])
    with pytest.raises(UsageError, match="did you mean 'depth'"):
        apply_all(sample(), ["capacity-dips:dept=1"])
    with pytest.raises(UsageError, match="seed = -1"):
        apply(sample(), "thin", -1)


def test_nothing_left_and_nothing_there() -> None:
    with pytest.raises(DataError, match="leaves no jobs"):
        apply(sample(), "window:start=9999d")
    empty = sample().head(0)
    with pytest.raises(DataError, match="no jobs to apply thin to"):
        apply(empty, "thin")
    with pytest.raises(DataError, match="no span of time"):
        apply_to_cluster(Cluster.uniform(1, 8), "capacity-dips", empty)


@given(cases(), st.integers(1, 4), st.integers(0, 2**40))
def test_dips_of_any_cluster_at_all(case: Case, severity: int, seed: int) -> None:
    cluster = apply_to_cluster(case.cluster, f"capacity-dips:{severity}", case.workload, seed)
    added = cluster.outages[len(case.cluster.outages) :]
    size = case.cluster.nodes.gpus if case.cluster.gpus else np.ones(len(case.cluster.nodes))
    taken: dict[float, float] = {}
    for outage in added:
        taken[outage.start] = taken.get(outage.start, 0) + (outage.gpus or size[outage.node])
    assert set(taken.values()) == {np.ceil(severity / 8 * size.sum())}
    lost = sum((outage.end - outage.start) * (outage.gpus or size[outage.node]) for outage in added)
    assert lost == pytest.approx(severity / 8 * size.sum() * max(np.ptp(case.workload.jobs.submit), 1.0) / 4)
    result = simulate(case.workload, cluster, parse_scheduler("fcfs/best/easy"), rules=case.rules)
    assert len(result) == len(case.workload)


TEXTS = [text_of(name) for name in TRANSFORMS if name not in ("window", "only", "load", "batch")]


@given(cases(), st.sampled_from(TEXTS), st.integers(0, 2**40))
def test_of_any_workload_at_all(case: Case, text: str, seed: int) -> None:
    """Ties, jobs at once, shares, CPU jobs, infinite deadlines: what comes out is checked by the same rules as what is read."""
    workload = case.workload
    try:
        made = apply(workload, text, seed)
    except UsageError:
        assert float(np.ptp(workload.jobs.submit)) == 0  # nothing to rotate
        return
    columns = {name: made.jobs.table[name] for name in made.jobs.table.dtype.names or ()}
    again, order = Jobs.build(columns, **made.jobs.labels)
    assert order.tolist() == list(range(len(made)))
    assert again == made.jobs
    assert not np.isnan(made.jobs.deadline).any()
    known = made.jobs.id <= workload.jobs.id.max()
    assert known.all() or text in COPYING
    assert set(made.jobs.id[known].tolist()) <= set(workload.jobs.id.tolist())
