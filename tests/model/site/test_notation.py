"""What Slurm writes into one field, value by value."""

from __future__ import annotations

import math

import pytest

from gpuyard.model.site.notation import Resources, gigabytes_of, gres_of, instant_of, minutes_of, node_names, seconds_of, tres_of
from gpuyard.model.units import GIB, MIB


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:24", 24), ("14:00:49", 50449), ("3-00:00:00", 259200), ("1-02", 93600), ("05:07.250", 307.25), ("90:00", 5400),
        ("UNLIMITED", math.inf), ("Partition_Limit", math.inf), ("", math.inf),
    ],
)  # fmt: skip
def test_spans(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(("text", "limit"), [("5", 300), ("1440.0", 86400), ("0", math.inf), ("4294967295", math.inf), ("01:00:00", 3600)])
def test_limits_in_minutes(text: str, limit: float) -> None:
    assert minutes_of(text) == limit


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-02T00:00:01", 86401), ("1970-01-01T02:00:00+02:00", 0), ("1970-01-01T00:00:10Z", 10), ("1527327585", 1527327585),
        ("1970-01-01 00:00:10.5", 10.5), ("Unknown", math.nan), ("None", math.nan), ("0", math.nan),
    ],
)  # fmt: skip
def test_instants(text: str, instant: float) -> None:
    assert instant_of(text) == pytest.approx(instant, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "gigabytes", "per"),
    [
        ("4000Mc", 4000 * MIB, "c"),
        ("62.50G", 62.5 * GIB, ""),
        ("1Tn", 1024 * GIB, "n"),
        ("0n", 0, "n"),
        ("512", 512 * MIB, ""),
        ("2147486648Mn", math.nan, "n"),
    ],
)
def test_memory(text: str, gigabytes: float, per: str) -> None:
    found, kind = gigabytes_of(text)
    assert (found, kind) == (pytest.approx(gigabytes, nan_ok=True), per)


def test_trackable_resources() -> None:
    assert tres_of("billing=9,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=32G,node=2") == Resources(8, 32 * GIB, 2, 4, "a100")
    assert tres_of("cpu=1,gres/gpu:A100=1,gres/gpu:v100=2,mem=1M,node=1") == Resources(1, MIB, 1, 3, "")
    assert tres_of("cpu=1,mem=1G,node=1,gres/gpu=2").gpu_type == ""
    assert math.isnan(tres_of("cpu=1").gpus) and math.isnan(tres_of("").cpus)
    assert tres_of("gres/gpu:1g.5gb=1,gres/gpumem=3G,gres/gpuutil=10").gpus == 1


def test_older_gres() -> None:
    assert gres_of("gpu:2").gpus == 2
    assert gres_of("gpu:volta:1,craynetwork:1") == gres_of("gres:gpu:Volta:1")
    assert gres_of("gpu:kepler:2(IDX:0-1)").gpu_type == "kepler"
    assert gres_of("gpu:tesla").gpus == 1
    assert math.isnan(gres_of("craynetwork:1").gpus)


def test_node_lists() -> None:
    assert node_names("gpu[001-003,7],c1") == ["gpu001", "gpu002", "gpu003", "gpu7", "c1"]
    assert node_names("r[1-2]n[08-09]-ib") == ["r1n08-ib", "r1n09-ib", "r2n08-ib", "r2n09-ib"]
    assert node_names("cpn-f13-03-[01-02],d09n04s02") == ["cpn-f13-03-01", "cpn-f13-03-02", "d09n04s02"]
    assert node_names("") == []


@pytest.mark.parametrize("text", ["n[0-999999999]", "n[1-400]m[1-400]", "n[1-2", "n1]", "n[[1]]", "n[2-1]", "n[a]", "n[]"])
def test_node_lists_that_cannot_be(text: str) -> None:
    with pytest.raises(ValueError):
        node_names(text)


@pytest.mark.parametrize(("parse", "text"), [(seconds_of, "1:2:3:"), (instant_of, "yesterday"), (gigabytes_of, "much"), (tres_of, "cpu=x")])
def test_what_cannot_be_read(parse: object, text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)  # type: ignore[operator]


def test_a_list_as_python_writes_it():
    assert node_names("['r1-n1', 'r1-n2']") == ["r1-n1", "r1-n2"]
    assert node_names("['r1']") == ["r1"]
    with pytest.raises(ValueError, match="brackets"):
        node_names("['r1', 'r2'")
