"""Files are written whole, locked by one process, and read within bounds; every failure is one line that names the file."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path

import pytest

from gpuyard.errors import DataError, UsageError
from gpuyard.files import (
    beside,
    claim,
    from_plain,
    locked,
    merge_tables,
    parse_json,
    parse_toml,
    read_bytes,
    read_toml,
    replacing,
    staged,
    to_plain,
    unzipped,
    user_path,
    write_bytes,
)


@pytest.mark.parametrize("alone", [False, True])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, alone: bool) -> None:
    path = tmp_path / "a"
    write_bytes(path, b"old", alone=alone)
    with pytest.raises(KeyboardInterrupt), replacing(path, alone=alone) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    full = pytest.raises(DataError, match=r"a: cannot be written: No space left on device; hint: make room")
    with full, replacing(path, alone=alone, hint="make room"):
        raise OSError(28, os.strerror(28))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_process_leaves_at_most_one_file_under_a_lock(tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(b"half of something longer")
    write_bytes(tmp_path / "a", b"new", alone=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"new"


def test_two_writers_at_once_do_not_meet(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as one, replacing(tmp_path / "a") as other:
        one.write(b"1")
        other.write(b"2")
    assert (tmp_path / "a").read_bytes() == b"1"  # the outer block ends last


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with beside(tmp_path / "a") as place:
        place.unlink()
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))  # a library may make its own file
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_folders_are_made_for_a_file_and_only_files_are_replaced(tmp_path: Path) -> None:
    write_bytes(tmp_path / "b" / "c" / "d", b"x")
    assert (tmp_path / "b" / "c" / "d").read_bytes() == b"x"
    with pytest.raises(DataError, match="b: cannot be written: it exists and is not a file"):
        write_bytes(tmp_path / "b", b"x")
    with pytest.raises(DataError, match="cannot be written"):
        write_bytes(tmp_path / "b" / "c" / "d" / "e", b"x")
    with pytest.raises(DataError, match="cannot be written"):
        write_bytes(tmp_path / "a\0b", b"x")


def test_a_lock_is_for_one_and_names_its_holder(tmp_path: Path) -> None:
    with locked(tmp_path / "new"):
        with (tmp_path / "new" / "lock").open("ab") as other:
            assert not claim(other)
        busy = pytest.raises(UsageError, match=rf"new: in use by another gpuyard process \({os.getpid()}\); hint: wait")
        with busy, locked(tmp_path / "new"):
            pass
    with locked(tmp_path / "new"):
        pass


def test_reading_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", 5, "a test") == b"12345"
    with pytest.raises(DataError, match="a: larger than 4 bytes, too large for a test"):
        read_bytes(tmp_path / "a", 4, "a test")
    with pytest.raises(DataError, match="larger than 1,000 bytes"):
        read_bytes(Path("/dev/zero"), 1_000, "a test")
    for path in (tmp_path, tmp_path / "absent", tmp_path / ("x" * 5_000), tmp_path / "a\0b"):
        with pytest.raises(DataError, match="cannot be read") as caught:
            read_bytes(path, 5, "a test")
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "[Infinity]", '{"a": -Infinity}', "[" * 100_000, "9" * 10_000, b"\xff"], ids=lambda text: repr(text[:9])
)
def test_what_is_not_json(text: str | bytes) -> None:
    with pytest.raises(DataError, match="^here: not JSON: ..*; hint: fix it$"):
        parse_json(text, "here", hint="fix it")


def test_json_as_strict_as_asked_for() -> None:
    assert math.isnan(parse_json("[NaN]", "here", constants=True)[0])
    assert parse_json('{"a": 1, "a": 2, "b": "\\ud800"}', "here") == {"a": 2, "b": "\ud800"}
    assert parse_json('"\\ud83d\\ude00"', "here", strict=True) == "\N{GRINNING FACE}"
    for text in ('{"a": 1, "a": 2}', '[{"b": {"a": 1, "a": 1}}]', '"\\ud800"', '{"\\uD800": 1}'):
        with pytest.raises(DataError, match="^here: not JSON: "):
            parse_json(text, "here", strict=True)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"[a\nb = 1", r"not TOML: Expected .*line 1"),
        (b"a = " + b"[" * 100_000, "not TOML: "),
        (b"a = " + b"9" * 10_000, "not TOML: "),
        (b"a = '\xff'", "byte 5 is not UTF-8"),
        (b"a = " + b"[" * 8 + b"]" * 8, "nested more than 8 levels deep"),
        (b"a" + b".a" * 5_000 + b" = 1", "nested more than 8 levels deep"),
    ],
    ids=range(6),
)
def test_toml_that_is_refused(tmp_path: Path, raw: bytes, says: str) -> None:
    with pytest.raises(DataError, match=f"^here: {says}") as caught:
        parse_toml(raw, "here")
    assert "\n" not in str(caught.value)
    (tmp_path / "a.toml").write_bytes(raw)
    with pytest.raises(DataError, match=f"a.toml: {says}"):
        read_toml(tmp_path / "a.toml", "a test")


def test_toml_within_bounds(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[a.b.c.d.e.f.g]\nh = 1\n")
    assert read_toml(tmp_path / "a.toml", "a test")["a"]["b"]["c"]["d"]["e"]["f"]["g"] == {"h": 1}
    with pytest.raises(DataError, match="larger than 9 bytes, too large for a test"):
        read_toml(tmp_path / "a.toml", "a test", 9)


def test_later_tables_win_at_every_depth() -> None:
    assert merge_tables({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 4}, "d": {"e": 5}}) == {"a": {"b": 4, "c": 2}, "d": {"e": 5}}


def test_plain_values_come_back() -> None:
    value = {"a": (1, 2.5, None), "b": [math.inf, -math.inf], "c": {"d": "text", "e": True}}
    assert from_plain(to_plain(value, "x")) == {**value, "a": [1, 2.5, None]}
    assert math.isnan(from_plain(to_plain(math.nan, "x")))
    with pytest.raises(DataError, match=r"x\.a\[1\]: a object cannot be saved"):
        to_plain({"a": [1, object()]}, "x")
    with pytest.raises(DataError, match="none of inf"):
        from_plain({"$float": "12"})


# ── several files together ──


def test_staged_files_move_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("old")
    with pytest.raises(KeyboardInterrupt), staged(tmp_path, last="page.html") as place:
        (place / "page.html").write_text("new")
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_text() == "old"
    with staged(tmp_path, last="page.html") as place:
        (place / "figures").mkdir()
        (place / "figures" / "a.png").write_text("a")
        (place / "page.html").write_text("new")
        assert not (tmp_path / "figures").exists()
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == {"page.html", "figures", "figures/a.png"}
    assert (tmp_path / "page.html").read_text() == "new"


def test_what_a_killed_process_left_is_removed_later(tmp_path: Path) -> None:
    young, old = tmp_path / ".1.part", tmp_path / ".2.part"
    for folder in (young, old):
        folder.mkdir()
    os.utime(old, (0, 0))
    with staged(tmp_path):
        pass
    assert young.exists()
    assert not old.exists()


# ── names that no file can have ──


def test_a_home_folder_of_nobody(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="~nobody-of-that-name/log.swf: no such home folder"):
        user_path("~nobody-of-that-name/log.swf")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="Linux only")
def test_a_file_that_can_be_opened_but_not_read() -> None:
    with pytest.raises(DataError, match="/proc/self/mem: input/output error"), unzipped(Path("/proc/self/mem")):
        pass
