"""Names, parameters and files that `load_workload` understands, and what it says about those it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import DataError, UnknownNameError, UsageError
from gpuyard.traces import GENERATORS, READERS, load_workload

SMALL = {"lublin": "lublin:jobs=50", "gangs": "gangs:jobs=50", "poisson": "poisson:jobs=50", "demo": "demo:jobs=50"}


@pytest.mark.parametrize("name", list(GENERATORS))
def test_every_generator_depends_on_its_seed_only(name: str) -> None:
    text = SMALL.get(name, name)
    first, again, other = load_workload(text, 7), load_workload(text, 7), load_workload(text, 8)
    assert first == again
    assert first.jobs != other.jobs
    assert first.name == text
    assert len(first) > 0
    assert (np.diff(first.jobs.submit) >= 0).all()
    assert (first.runtime > 0).all()


@pytest.mark.parametrize("name", list(GENERATORS))
def test_every_generator_says_what_it_is(name: str) -> None:
    found = GENERATORS[name]
    assert found.title
    assert (found.function.__doc__ or "").strip()
    assert all(p.default is not None for p in found.parameters)


@pytest.mark.parametrize("name", list(GENERATORS))
def test_a_default_written_out_changes_nothing(name: str) -> None:
    text = SMALL.get(name, name)
    given = "jobs=50" in text
    spelled = ",".join(f"{p.name}={p.default}" for p in GENERATORS[name].parameters if not (given and p.name == "jobs"))
    written = load_workload(f"{name}:{'jobs=50,' if given else ''}{spelled}", 3)
    assert written.jobs == load_workload(text, 3).jobs


def test_parameters_have_units_and_options_win() -> None:
    assert load_workload("family:horizon=2h", 1).jobs == load_workload("family:horizon=7200", 1).jobs
    assert load_workload("family:horizon=2h", 1, horizon=3600.0).jobs == load_workload("family", 1).jobs
    assert len(load_workload("gangs:jobs=2k")) == 2000


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("famly", UnknownNameError, "did you mean 'family'?"),
        ("famly:shape=base", UnknownNameError, "did you mean 'family'?"),
        ("family:shap=base", UnknownNameError, "did you mean 'shape'?"),
        ("family:shape=burst", UnknownNameError, "did you mean 'bursty'?"),
        ("family:shape", UsageError, "'shape' is not NAME=VALUE"),
        ("family:gpus=2,gpus=3", UsageError, "given twice"),
        ("family:gpus=two", UsageError, "gpus: 'two'"),
        ("family:gpus=0", UsageError, "gpus = 0"),
        ("family:gpus=1000000000", UsageError, "gpus = 1000000000"),
        ("family:horizon=soon", UsageError, "horizon: 'soon'"),
        ("family:horizon=0", UsageError, "horizon = 0"),
        ("family:horizon=inf", UsageError, "horizon = inf"),
        ("family:error=nan", UsageError, "error: 'nan'"),
        ("lublin:jobs=1e9", UsageError, "jobs: '1e9'"),
        ("lublin:jobs=1G", UsageError, "1,000,000,000 jobs"),
        ("lublin:jobs=0", UsageError, "0 jobs"),
        ("lublin:nodes=1", UsageError, "nodes = 1"),
        ("lublin:load=-1", UsageError, "load = -1"),
        ("gangs:load=0", UsageError, "load = 0"),
        ("gangs:nodes=0", UsageError, "0 nodes"),
        ("gangs:nodes=1G,gpus_per_node=1G", UsageError, "more than"),
        ("gangs:median=0", UsageError, "median = 0"),
        ("gangs:users=0", UsageError, "users = 0"),
        ("poisson:largest=65", UsageError, "largest = 65"),
        ("poisson:mean=1", UsageError, "not sensible"),
        ("demo:days=0", UsageError, "days = 0"),
    ],
)
def test_a_wrong_generator_is_refused(text: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        load_workload(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="seed = -1"):
        load_workload("family", -1)


def test_a_missing_file_suggests_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "trace.swf").write_text("")
    with pytest.raises(DataError, match=r"trase.swf: no such file; hint: did you mean '.*trace.swf'"):
        load_workload(str(tmp_path / "trase.swf"))
    with pytest.raises(DataError, match=r"nowhere/a.swf: no such file; hint: give a file, or a generator: "):
        load_workload("nowhere/a.swf")
    with pytest.raises(DataError, match="no such file"):
        load_workload("./" + "x" * 5000)
    with pytest.raises(DataError, match="no such file"):
        load_workload("a\0b.swf")


def test_a_file_no_reader_knows(tmp_path: Path) -> None:
    path = tmp_path / "trace.dat"
    path.write_text("came,took\n0,1\n")
    with pytest.raises(UsageError, match="neither the content nor the name matches a known format; hint: .*swf"):
        load_workload(str(path))
    assert len(load_workload(str(path), reader="csv", columns={"submit": "came", "runtime": "took"})) == 1
    with pytest.raises(UnknownNameError, match="did you mean 'csv'"):
        load_workload(str(path), reader="cvs")


def test_a_wrong_option_of_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_text("1 0 -1 5 1" + " -1" * 13 + "\n")
    with pytest.raises(UnknownNameError, match="did you mean 'processors'"):
        load_workload(str(path), procesors="requested")
    with pytest.raises(UnknownNameError, match="did you mean 'requested'"):
        load_workload(str(path), processors="request")


def test_every_reader_can_be_found() -> None:
    assert {"swf", "csv"} <= set(READERS)
    assert all((found.globs or found.sniff) and found.title for _, found in READERS.items())
