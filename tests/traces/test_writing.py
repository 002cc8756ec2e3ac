"""Files are written as a whole or not at all, and what a format cannot hold is told."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.errors import DataError, UsageError
from gpuyard.model.workload import Machine, Workload
from gpuyard.traces import load_workload, swf_header, with_estimate, write_workload
from gpuyard.traces.base import READERS
from gpuyard.traces.opening import Limits
from gpuyard.traces.writing import written


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), written(path) as out:
        out.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    with written(path) as out:
        out.write(b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_only_files_are_written_over(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a file"), written(tmp_path) as out:
        out.write(b"x")
    with pytest.raises(UsageError, match=r"in which format\?; hint: end the name with .csv\[.gz\] or .swf\[.gz\]"):
        write_workload(load_workload("demo:jobs=5"), tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_what_is_lost_is_told(tmp_path: Path) -> None:
    plain = Workload.build({"submit": [0.0, 1.0], "walltime": [9.0, 9.0]}, [5.0, 6.0])
    assert write_workload(plain, tmp_path / "a.swf") == []
    assert write_workload(plain, tmp_path / "a.csv") == []
    demo = load_workload("demo:jobs=50")
    assert write_workload(demo, tmp_path / "a.swf") == ["the columns deadline, priority, chunk, job_class, terms"]
    assert write_workload(demo, tmp_path / "a.csv") == []
    facts = replace(
        with_estimate(plain, "exact"),
        dropped={"no run time": 3},
        notes=("time 0 is 2017-08-14T23:27:00",),
        machines=(Machine("a", 8), Machine("b", 8)),
    )
    lost = ["how many rows were dropped when it was read: 3", "the nodes that the trace shows", "the source of its estimates"]
    assert write_workload(facts, tmp_path / "a.swf") == ["the columns estimate", *lost]
    assert write_workload(facts, tmp_path / "a.csv") == [*lost, "the date of time 0"]
    odd = Workload.build({"submit": [0.0, 1.0], "user": [0, 1]}, [5.0, 6.0], users=("NA", " x"))
    assert write_workload(odd, tmp_path / "a.csv") == ["the labels ' x', 'NA' unchanged: a table reads them as blank or strips blanks"]


def test_swf_keeps_the_machine_and_the_date(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    log.write_text("; MaxProcs: 64\n; UnixStartTime: 956700003\n1 0 -1 5 4" + " -1" * 13 + "\n")
    write_workload(load_workload(str(log)), tmp_path / "again.swf")
    header = swf_header(tmp_path / "again.swf")
    assert (header["MaxProcs"], header["UnixStartTime"]) == ("64", "956700003")
    write_workload(load_workload("demo:jobs=50"), tmp_path / "demo.swf")
    assert swf_header(tmp_path / "demo.swf")["MaxProcs"] == "128"


FORMULAS = ("=HYPERLINK(1)", "+1+1", "-cmd|' /C calc'!A0", "@SUM(1)", "'=already", "''+twice", "-5", "+7.5", "plain", "a=b")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_names_cannot_be_formulas_and_read_back_as_they_were(tmp_path: Path, name: str) -> None:
    workload = Workload.build({"submit": range(len(FORMULAS)), "user": range(len(FORMULAS))}, [5.0] * len(FORMULAS), users=FORMULAS)
    assert write_workload(workload, tmp_path / name) == []
    text = (gzip.decompress if name.endswith("gz") else bytes)((tmp_path / name).read_bytes()).decode()
    cells = {row["user"] for row in csv.DictReader(text.splitlines())}
    assert {"'=HYPERLINK(1)", "'+1+1", "'@SUM(1)", "''=already", "-5", "+7.5", "plain", "a=b"} <= cells
    again = load_workload(str(tmp_path / name)).jobs
    assert [again.users[user] for user in again.user] == list(FORMULAS)


def test_control_characters_are_replaced_and_told(tmp_path: Path) -> None:
    names = ("\x1b[31mred", "two\nlines; 1", "c1 \x9b2J")
    workload = Workload.build({"submit": [0.0, 1.0, 2.0], "user": [0, 1, 2], "walltime": [9.0] * 3}, [5.0, 6.0, 7.0], users=names)
    for name in ("a.csv", "a.swf"):
        lost = write_workload(workload, tmp_path / name)
        text = (tmp_path / name).read_text()
        assert all(c.isprintable() or c == "\n" for c in text)
        assert name == "a.swf" or "control characters" in lost[0]
        assert len(load_workload(str(tmp_path / name)).jobs) == 3


@pytest.mark.parametrize("kind", ["swf", "swf19"])
def test_comments_without_end_are_not_read_to_the_end(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"endless.{kind}"
    path.write_bytes(b"; nothing but comments\n" * 100_000)
    limits = Limits(comments=1 << 20)
    with pytest.raises(DataError, match="more than 1,048,576 bytes of comments and blank lines in a row"):
        READERS[kind].function(path, limits=limits)
    if kind == "swf":
        with pytest.raises(DataError, match="comments"):
            swf_header(path, limits)
