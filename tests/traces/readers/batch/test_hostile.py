"""Files that mean harm: one clear line, and no more memory than the limits allow."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpuyard.errors import DataError
from gpuyard.traces import READERS, Limits, load_workload

NAMES = ("sacct", "sacct-json", "slurm-table", "jobcomp", "lsb-acct", "bjobs-json", "bjobs")
STARTS = {
    "sacct": b"JobID|State|Submit|Start|End|NCPUS\n",
    "slurm-table": b"id_job,time_submit,time_start,time_end,state\n",
    "bjobs": b"JOBID|STAT|SUBMIT_TIME\n",
    "sacct-json": b'{"jobs": [',
    "bjobs-json": b'{"RECORDS": [',
}


def refused(path: Path, name: str, **options: Limits) -> str:
    with pytest.raises(DataError) as caught:
        load_workload(str(path), reader=name, **options)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message and len(message) < 1000
    return message


@pytest.mark.parametrize("name", NAMES)
def test_a_gzip_bomb(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(STARTS.get(name, b"") + b" " * (50 << 20)))
    assert "bytes" in refused(path, name, limits=Limits(size=10 << 20))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("letter", [b'"', b"[", b"|", b"{", b",", b"9", b"a"])
def test_one_long_line(tmp_path: Path, name: str, letter: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(STARTS.get(name, b"") + letter * (3 << 20))
    refused(path, name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("letter", [b'"', b'""', b"[", b"|", b"{", b",", b"9", b'"a', b"n[1-2],", b"=", b" "])
def test_a_line_just_below_the_limit(tmp_path: Path, name: str, letter: bytes) -> None:
    path = tmp_path / "log"
    first = {"lsb-acct": b'"JOB_FINISH" "10.1" 1 ', "jobcomp": b"JobId=1 JobState=x NodeList="}.get(name, b"1|")
    path.write_bytes(STARTS.get(name, b"") + first + letter * ((1 << 19) // len(letter)) + b"\n")
    refused(path, name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [b"", b"\n\n\n", b"\xff\xfe", b"a\0b\n", b"\x1f\x8b\x08"])
def test_no_text(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    refused(path, name)


def test_too_many_columns(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"|".join([b"JobID", b"Start", *[b"End"] * 20_000]) + b"\n")
    assert "20,002 columns" in refused(path, "sacct")


def test_all_readers_of_accounting_are_tried() -> None:
    assert set(NAMES) == {name for name, each in READERS.items() if each.function.__module__.startswith("gpuyard.traces.readers.batch")}
