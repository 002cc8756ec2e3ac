"""Tables of run times: fitted by counting, written, read with suspicion, named in the text of a scheduler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpuyard import Workload, load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.errors import CheckpointError, DataError, GpuyardError, UsageError
from gpuyard.networks.tensor_file import write_arrays
from gpuyard.policies.ranks import KEY, fit_run_times, gittins, read_run_times, table_names, write_run_times
from gpuyard.policies.slots import RankRule


def fitted(classes: int = 4, count: int = 8):
    key = np.repeat([10.0, 100.0, 1000.0, 10000.0], 50)
    runtime = np.tile(np.arange(1.0, 51.0), 4) * key / 50.0
    return fit_run_times(key, runtime, by_walltime=True, classes=classes, count=count)


def test_a_fit_counts_by_class():
    table = fitted()
    assert np.searchsorted(table.edges, [10.0, 100.0, 1000.0, 10000.0], side="right").tolist() == [0, 1, 2, 3]
    assert table.quantiles.shape == (4, 8)
    np.testing.assert_allclose(table.quantiles[1], np.quantile(np.arange(1.0, 51.0) * 2.0, (np.arange(8) + 0.5) / 8))
    assert table.about["jobs"] == 200


def test_equal_keys_are_one_class():
    table = fit_run_times(np.full(50, 60.0), np.arange(1.0, 51.0), by_walltime=False)
    assert table.quantiles.shape == (1, 32) and len(table.edges) == 0


def test_jobs_without_key_or_length_do_not_count():
    key, runtime = np.array([np.inf, 5.0] * 30), np.array([5.0, 7.0] * 30)
    assert fit_run_times(key, runtime, by_walltime=True).about["jobs"] == 30
    with pytest.raises(DataError, match="too few"):
        fit_run_times(key, np.zeros(60), by_walltime=True)
    with pytest.raises(UsageError, match="classes"):
        fit_run_times(key, runtime, by_walltime=True, classes=0)


def test_a_table_reads_back_as_written(tmp_path: Path):
    table = fitted()
    write_run_times(tmp_path / "t.safetensors", table)
    again = read_run_times(tmp_path / "t.safetensors")
    assert again.packed == table.packed and again.by_walltime and again.about["jobs"] == 200


@pytest.mark.parametrize(
    "arrays, meta",
    [
        ({"edges": np.zeros(0), "quantiles": np.ones((1, 4))}, {}),
        ({"edges": np.zeros(0), "quantiles": np.ones((1, 4))}, {KEY: "{}"}),
        ({"edges": np.zeros(0), "quantiles": np.ones((1, 4))}, {KEY: '{"version": 2, "by_walltime": true}'}),
        ({"edges": np.zeros(0), "quantiles": np.ones((1, 4))}, {KEY: "[1, 2"}),
        ({"edges": np.zeros(1), "quantiles": np.ones((1, 4))}, {KEY: '{"version": 1, "by_walltime": true}'}),
        ({"edges": np.zeros(0), "quantiles": np.array([[3.0, 2.0]])}, {KEY: '{"version": 1, "by_walltime": true}'}),
        ({"edges": np.array([np.nan]), "quantiles": np.ones((2, 2))}, {KEY: '{"version": 1, "by_walltime": true}'}),
        ({"edges": np.array([5.0, 5.0]), "quantiles": np.ones((3, 2))}, {KEY: '{"version": 1, "by_walltime": true}'}),
        ({"other": np.zeros(3)}, {KEY: '{"version": 1, "by_walltime": true}'}),
    ],
)
def test_what_is_no_table_is_refused_with_its_file(tmp_path: Path, arrays: dict[str, np.ndarray], meta: dict[str, str]):
    path = tmp_path / "bad.safetensors"
    write_arrays(path, arrays, meta)
    with pytest.raises(CheckpointError, match=r"bad\.safetensors"):
        read_run_times(path)


def test_the_shipped_tables_are_sound():
    assert table_names() == ("gpu", "hpc")
    for name in table_names():
        rule = parse_scheduler(f"saf/fewest/easy/gittins:table={name}").preemption
        assert isinstance(rule, RankRule) and rule.table is not None
        assert rule.table.quantiles.shape[1] == 32 and 10 <= len(rule.table.quantiles) <= 24
        assert rule.table.by_walltime == (name == "hpc")
        assert rule.table.table.about["part"] == [0.25, 0.6]


def test_tables_in_the_text_of_a_scheduler(tmp_path: Path):
    assert parse_scheduler("saf/fewest/easy/gittins").label == "saf/fewest/easy/gittins"
    assert parse_scheduler("saf/fewest/easy/gittins:table=auto").label == "saf/fewest/easy/gittins"
    assert parse_scheduler("saf/fewest/easy/gittins:table=hpc").label == "saf/fewest/easy/gittins:table=hpc"
    label = parse_scheduler("saf/best/easy/gittins:hysteresis=4,table=gpu,every=30").label
    assert label == "saf/best/easy/gittins:table=gpu,every=30,hysteresis=4"
    assert parse_scheduler(label).label == label
    path = tmp_path / "mine.safetensors"
    write_run_times(path, fitted())
    mine = parse_scheduler(f"saf/fewest/easy/gittins:table={path}")
    assert mine.preemption.table.packed == fitted().packed
    assert parse_scheduler(mine.label).label == mine.label
    for text in ("gittins:table=hcp", "srpt:table=hpc", "gittins:hysteresis=0.5", "gittins:threshold=3", f"gittins:table={tmp_path}"):
        with pytest.raises(GpuyardError):
            parse_scheduler(f"saf/fewest/easy/{text}")


@pytest.mark.parametrize("asked, named", [(np.full(80, 3600.0), "hpc"), (np.full(80, np.inf), "gpu")])
def test_a_job_has_the_table_for_jobs_that_requested_a_time_or_that_for_others(asked: np.ndarray, named: str):
    rng = np.random.default_rng(1)
    runtime = rng.lognormal(5.0, 1.5, 80)
    columns = {"submit": np.arange(80) * 60.0, "gpus": rng.choice([1, 2], 80), "walltime": asked, "preemptible": [1.0] * 80}
    workload = Workload.build({**columns, "estimate": 2 * runtime}, runtime)
    by_itself, as_named, other = (
        simulate(workload, load_cluster("4"), parse_scheduler(f"saf/fewest/easy/gittins{text}")).table["end"]
        for text in ("", f":table={named}", f":table={'gpu' if named == 'hpc' else 'hpc'}")
    )
    np.testing.assert_array_equal(by_itself, as_named)
    assert (by_itself != other).any()


def test_a_table_of_ones_own_in_python():
    assert gittins(fitted()).label == "gittins:table=fitted"


def test_a_table_is_fitted_from_the_training_part_of_a_workload():
    from gpuyard.learn.rank import RankFit

    text = "lublin:jobs=60"
    table = RankFit((text,), "256", classes=3, quantiles=4).fit("a command")
    assert table.about["jobs"] == 480 and table.about["command"] == "a command"  # eight episodes of 60
    estimates = RankFit((text,), "256", by="estimate").fit()
    assert not estimates.by_walltime
    assert len(load_workload(text)) == 60
    with pytest.raises(UsageError, match="by"):
        RankFit((text,), "256", by="age").fit()
