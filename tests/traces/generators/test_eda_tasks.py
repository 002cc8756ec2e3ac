"""CPU jobs from ranges, and tasks with a law of how long they take."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard import Workload, load_cluster, parse_scheduler, simulate
from gpuyard.errors import UsageError
from gpuyard.traces import guess_cluster, load_workload


def test_eda_jobs_lie_in_their_ranges() -> None:
    n = 20_000
    workload = load_workload(f"eda:jobs={n},cores=2:5,memory=500MB:4GB,duration=1min:10min,arrivals=0:3", 1)
    jobs = workload.jobs
    assert set(jobs.gpus) == {0}
    assert set(jobs.cpus) == {2, 3, 4, 5}
    shares = np.array([(jobs.cpus == c).mean() for c in (2, 3, 4, 5)])
    assert (np.abs(shares - 0.25) < 4 * np.sqrt(0.1875 / n)).all()
    for values, low, high in ((jobs.memory, 0.5, 4.0), (workload.runtime, 60.0, 600.0)):
        assert low <= values.min() <= values.max() <= high
        assert abs(values.mean() - (low + high) / 2) < 4 * (high - low) / np.sqrt(12 * n)
    per_second = np.bincount(jobs.submit.astype(int))[:-1]
    assert abs(per_second.mean() - 1.5) < 4 * np.sqrt((1.5 + 0.75) / len(per_second))
    assert per_second.var() == pytest.approx(1.5 + 3**2 / 12, rel=0.1)  # Poisson with a uniform mean


def test_eda_jobs_are_the_same_however_many_are_made() -> None:
    few, more = load_workload("eda:jobs=100", 5), load_workload("eda:jobs=5000", 5)
    np.testing.assert_array_equal(few.jobs.submit, more.jobs.submit[:100])
    np.testing.assert_array_equal(few.jobs.memory, more.jobs.memory[:100])


def test_eda_runs_on_its_hosts() -> None:
    workload = load_workload("eda:jobs=2000", 1)
    cluster, origin = guess_cluster(workload)
    assert "preset hosts:count=50" in origin
    result = simulate(workload, cluster, parse_scheduler("fcfs/best"))
    assert (result.table["status"] == result.table["status"][0]).all()
    load = float(workload.jobs.cpus @ workload.runtime) / np.ptp(workload.jobs.submit) / cluster.nodes.cpus.sum()
    assert 0.7 < load < 0.95


def test_tasks_take_what_the_law_says() -> None:
    workload = load_workload("tasks:jobs=5000,size=1000:9000", 2)
    jobs = workload.jobs
    c = np.array([float(label[1:]) for label in jobs.classes])[jobs.job_class]
    size = 1000 * (workload.runtime * (c + 0.5)) ** (2 / 3)
    assert size.min() + 1e-6 >= 1000
    assert size.max() <= 9000 + 1e-6
    assert abs(size.mean() - 5000) < 4 * 8000 / np.sqrt(12 * 5000)
    np.testing.assert_allclose(jobs.transfer, jobs.memory / 16)
    assert set(np.round(c * 20).astype(int)) == set(range(21))


@pytest.mark.parametrize("level", range(21))
def test_how_long_a_task_takes_on_either_device(level: int) -> None:
    """D on a CPU, D / (1 + 3c) + memory / 16 s on a GPU, at every intensity c."""
    c, names = level / 20, load_cluster("tasks").nodes.names
    workload = load_workload(f"tasks:jobs=1,intensity={c},size=4000,memory=8,gap=0", 1)
    d = 4**1.5 / (c + 0.5)
    for kind, seconds in (("cpu", d), ("gpu", d / (1 + 3 * c) + 0.5)):
        alone = Workload.build(
            {"submit": [0.0], "memory": workload.jobs.memory, "transfer": workload.jobs.transfer, "job_class": workload.jobs.job_class,
             "gpu_type": [0]}, workload.runtime, classes=workload.jobs.classes, gpu_types=(kind,),
        )  # fmt: skip
        line = simulate(alone, load_cluster("tasks"), parse_scheduler("fcfs")).table[0]
        assert names[line["node"]].startswith(kind)
        assert float(line["end"] - line["start"]) == pytest.approx(seconds, rel=1e-12)


def test_greedy_choice_weighs_the_transfer_against_the_speed() -> None:
    """D = 1 s, c = 0.1, 8 GB: 1 s on a CPU, 1 / 1.3 + 0.5 = 1.27 s on a GPU. With 1 GB the GPU is faster."""
    for memory, kind, seconds in ((8.0, "cpu", 1.0), (1.0, "gpu", 1 / 1.3 + 1 / 16)):
        size = 1000 * 0.6 ** (2 / 3)
        workload = load_workload(f"tasks:jobs=1,intensity=0.1,size={size!r},memory={memory},gap=0", 1)
        line = simulate(workload, load_cluster("tasks"), parse_scheduler("greedy-device")).table[0]
        assert load_cluster("tasks").nodes.names[line["node"]].startswith(kind)
        assert float(line["end"] - line["start"]) == pytest.approx(seconds, rel=1e-12)


def test_tasks_that_do_not_fit_the_gpu_go_to_a_cpu() -> None:
    workload = load_workload("tasks:jobs=40,intensity=1,memory=20:40,gap=0", 1)
    result = simulate(workload, load_cluster("tasks"), parse_scheduler("fcfs/fastest"), segments=True)
    assert {load_cluster("tasks").nodes.names[n][:3] for n in result.segments["node"]} == {"cpu"}


def test_the_mixes_of_the_shift_experiment() -> None:
    heavy = load_workload("tasks:intensity=0.7:1,memory=0.1:1")
    light = load_workload("tasks:jobs=500,intensity=0:0.3,memory=4GB:12GB")
    level = [float(heavy.jobs.classes[k][1:]) for k in heavy.jobs.job_class]
    assert (min(level), max(level)) == (0.7, 1.0)
    assert {float(light.jobs.classes[k][1:]) for k in light.jobs.job_class} == {0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3}
    assert light.jobs.memory.min() >= 4
    assert len(light) == 500


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("eda:cores=0:4", "at least 1"),
        ("eda:arrivals=0", "does not lie in 0..10,000"),
        ("eda:arrivals=-1:1", "arrivals"),
        ("eda:jobs=20M,arrivals=0.01", "to arrive"),
        ("eda:duration=1:99999d", "not sensible"),
        ("tasks:intensity=0.01:0.02", "contains none"),
        ("tasks:intensity=2:3", "contains none"),
        ("tasks:size=1:1e10", "size"),
        ("tasks:gap=1e9", "gap"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_workload(text)
    assert says in str(caught.value)
