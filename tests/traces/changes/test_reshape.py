"""Cutting and scaling, with values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.errors import DataError, UsageError
from gpuyard.model.workload import Workload
from gpuyard.traces import apply, load_workload

INF = float("inf")


def five() -> Workload:
    """Submits 100, 110, 130, 160, 200 of users a, b, a, c, b; 700 GPU-seconds of work."""
    columns = {
        "submit": [100.0, 110.0, 130.0, 160.0, 200.0], "gpus": [1.0, 2.0, 1.0, 4.0, 1.0], "walltime": [100.0, INF, 100.0, 200.0, 50.0],
        "deadline": [300.0, INF, 400.0, 500.0, 600.0], "user": [0, 1, 0, 2, 1], "partition": [0, 0, 1, 1, 0], "id": [11, 12, 13, 14, 15],
    }  # fmt: skip
    return Workload.build(
        columns, [50.0, 100.0, 100.0, 75.0, 50.0], name="five", users="abc", partitions=("p", "q"), logged_start=[100, 110, 140, 170, 210]
    )


def ids(workload: Workload) -> list[int]:
    return list(workload.jobs.id.tolist())


def test_window_first_and_only() -> None:
    assert ids(apply(five(), "window:start=110,end=160")) == [12, 13]
    cut = apply(five(), "window:110")
    assert ids(cut) == [12, 13, 14, 15]
    assert cut.jobs.submit.tolist() == [110, 130, 160, 200]
    assert cut.logged_start is not None
    assert cut.logged_start.tolist() == [110, 140, 170, 210]
    assert ids(apply(five(), "first:2")) == [11, 12]
    assert ids(apply(five(), "first:9")) == [11, 12, 13, 14, 15]
    assert ids(apply(five(), "only:user=b")) == [12, 15]
    assert ids(apply(five(), "only:user=a|c,partition=q")) == [13, 14]


def test_batches_are_consecutive_and_independent() -> None:
    found = [ids(apply(five(), f"batch:jobs=3,number={k}", 1)) for k in range(40)]
    assert {tuple(batch) for batch in found} == {(11, 12, 13), (12, 13, 14), (13, 14, 15)}
    assert ids(apply(five(), "batch:5")) == [11, 12, 13, 14, 15]
    with pytest.raises(DataError, match="5 jobs are fewer than a batch of 6"):
        apply(five(), "batch:6")


def test_thinning_is_nested_and_has_the_right_share() -> None:
    workload = load_workload("poisson:jobs=20000", 1)
    small, large = (set(ids(apply(workload, f"thin:{keep}", 5))) for keep in (0.3, 0.6))
    assert small < large
    assert abs(len(small) / 20_000 - 0.3) < 4 * np.sqrt(0.21 / 20_000)
    assert len(apply(workload, "thin:keep=1", 5)) == 20_000
    assert len(apply(workload, "thin:keep=1e-300", 5)) == 1


def test_thinning_by_user_keeps_all_or_none_of_a_user() -> None:
    workload = load_workload("gangs:jobs=3000,users=50", 1)
    kept = apply(workload, "thin:keep=0.4,by=user", 2)
    users = set(kept.jobs.users)
    assert 5 < len(users) < 45
    names = [workload.jobs.users[user] for user in workload.jobs.user]
    assert ids(kept) == [i for i, name in zip(ids(workload), names, strict=True) if name in users]


def test_stretch_moves_deadlines_along() -> None:
    made = apply(five(), "stretch:0.5")
    assert made.jobs.submit.tolist() == [100, 105, 115, 130, 150]
    assert made.jobs.deadline.tolist() == [300, INF, 385, 470, 550]
    assert made.runtime.tolist() == five().runtime.tolist()
    assert made.jobs.walltime.tolist() == five().jobs.walltime.tolist()


def test_load_is_that_of_the_definition() -> None:
    work = 1 * 50 + 2 * 100 + 1 * 100 + 4 * 75 + 1 * 50  # GPU-s, over 100 s: 7 GPUs on average
    assert work == 700
    made = apply(five(), "load:target=0.5,gpus=7")
    assert made.jobs.submit.tolist() == [100, 120, 160, 220, 300]
    assert float(made.jobs.gpus @ made.runtime) / (7 * 200) == 0.5
    guessed = apply(load_workload("poisson:jobs=500", 1), "load:1.2")  # its preset has 64 GPUs
    assert float(guessed.jobs.gpus @ guessed.runtime) / (64 * np.ptp(guessed.jobs.submit)) == pytest.approx(1.2, rel=1e-12)


def test_load_of_cpu_jobs_is_that_of_their_cores() -> None:
    workload = Workload.build({"submit": [0.0, 10.0], "gpus": [0.0, 0.0], "cpus": [2.0, 3.0]}, [10.0, 10.0])
    assert apply(workload, "load:target=0.5,cores=5").jobs.submit.tolist() == [0, 20]
    guessed = apply(load_workload("eda:jobs=400", 1), "load:0.7")
    offered = float(guessed.jobs.cpus @ guessed.runtime) / np.ptp(guessed.jobs.submit)
    assert 0.7 * 50 * 16 < offered < 0.7 * 50 * 32
    with pytest.raises(DataError, match="no work on GPUs"):
        apply(workload, "load:target=0.5,gpus=5")
    with pytest.raises(DataError, match="submitted at once"):
        apply(Workload.build({"submit": [3.0, 3.0]}, [1.0, 1.0]), "load:gpus=4")


def test_runtimes_scale_all_that_the_user_said_about_them() -> None:
    made = apply(five(), "runtimes:3")
    assert made.runtime.tolist() == [150, 300, 300, 225, 150]
    assert made.jobs.walltime.tolist() == [300, INF, 300, 600, 150]
    assert made.jobs.estimate.tolist() == [300, 300, 300, 600, 150]
    assert made.jobs.deadline.tolist() == [700, INF, 940, 1180, 1400]
    assert made.jobs.submit.tolist() == five().jobs.submit.tolist()
    assert made.logged_start is None


def test_a_pool_counts_devices_and_nothing_else() -> None:
    columns = {"submit": [0.0, 1.0, 2.0, 3.0, 4.0], "gpus": [8.0, 0.5, 4.0, 16.0, 2.0], "chunk": [8, 1, 4, 8, 1], "cpus": [9.0] * 5}
    workload = Workload.build({**columns, "gpu_type": [1] * 5}, [5.0, 5.0, 0.0, 5.0, 5.0], gpu_types=("", "a100"))
    made = apply(workload, "pool:8")
    assert made.jobs.id.tolist() == [1, 5]
    assert made.jobs.gpus.tolist() == [8, 2]
    assert (made.jobs.chunk.tolist(), made.jobs.cpus.tolist(), made.jobs.gpu_types) == ([1, 1], [0, 0], ("",))
    assert apply(workload, "pool").jobs.id.tolist() == [1, 4, 5]


def test_the_price_of_a_checkpoint_may_be_a_share_of_the_time_between_them() -> None:
    stated = apply(five(), "preemptible:share=1,checkpoint=600,writing=0.02,restart=60").jobs.stated
    assert set(stated["checkpoint_cost"].tolist()) == {12.0}
    assert set(stated["restart_cost"].tolist()) == {60.0}


def labelled() -> Workload:
    columns = {"submit": np.arange(6), "partition": [0, 0, 1, 1, 2, 2], "qos": [0, 1, 0, 1, 0, 1]}
    return Workload.build(columns, np.ones(6), partitions=("low", "mid", "high"), qoses=("free", "paid"))


def test_kinds_of_jobs_have_terms_of_their_own() -> None:
    changed = apply(labelled(), "preemptible:share=1,partition=low|mid,qos=free,checkpoint=600,restart=60")
    changed = apply(changed, "preemptible:share=0,partition=high")
    stated = changed.jobs.stated
    np.testing.assert_array_equal(stated["preemptible"], [1, np.nan, 1, np.nan, 0, 0])
    np.testing.assert_array_equal(stated["checkpoint"], [600, np.nan, 600, np.nan, np.nan, np.nan])
    later = apply(changed, "preemptible:share=1,qos=paid,partition=low,restart=300").jobs.stated
    np.testing.assert_array_equal(later["preemptible"], [1, 1, 1, np.nan, 0, 0])
    np.testing.assert_array_equal(later["restart_cost"], [60, 300, 60, np.nan, np.nan, np.nan])


def test_the_jobs_of_a_kind_are_drawn_as_those_of_all() -> None:
    """So that a share of a partition is part of the same share of the workload."""
    drawn = apply(labelled(), "preemptible:share=0.5", 3).jobs.stated["preemptible"]
    of_low = apply(labelled(), "preemptible:share=0.5,partition=low", 3).jobs.stated["preemptible"]
    np.testing.assert_array_equal(of_low, [*drawn[:2], *[np.nan] * 4])


def test_a_kind_that_no_job_has_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown partition of .*'lo'.*did you mean 'low'"):
        apply(labelled(), "preemptible:share=1,partition=lo")
