"""Files that are not what they should be: one clear line each."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import DataError
from gpuyard.traces import Limits, load_workload
from gpuyard.traces.opening import blocks

LINE = "{} {} 0 60 4 -1 -1 4 120 -1 1 7 -1 -1 2 -1 -1 -1\n"
SWF = "; MaxProcs: 64\n" + "".join(LINE.format(k, 10 * k) for k in range(1, 3001))
CSV = "submit,runtime\n" + "".join(f"{k},{k % 7}\n" for k in range(3000))


def _refused(path: Path, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        load_workload(str(path), **options)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


@pytest.fixture(params=["swf", "csv"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def text(kind: str) -> bytes:
    return {"swf": SWF, "csv": CSV}[kind].encode()


def test_gzip_or_not_is_seen_in_the_bytes(tmp_path: Path, kind: str, text: bytes) -> None:
    plain, zipped, unnamed = tmp_path / f"a.{kind}", tmp_path / f"a.{kind}.gz", tmp_path / f"b.{kind}"
    plain.write_bytes(text)
    zipped.write_bytes(gzip.compress(text))
    unnamed.write_bytes(gzip.compress(text))
    assert load_workload(str(plain)).jobs == load_workload(str(zipped)).jobs == load_workload(str(unnamed)).jobs


def test_truncated_gzip(tmp_path: Path, kind: str, text: bytes) -> None:
    path = tmp_path / f"a.{kind}.gz"
    whole = gzip.compress(text)
    for length in (3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "truncated: it ends after" in _refused(path)


def test_damaged_gzip(tmp_path: Path, kind: str, text: bytes) -> None:
    path = tmp_path / f"a.{kind}.gz"
    whole = bytearray(gzip.compress(text))
    whole[-6] ^= 255  # in the check sum
    path.write_bytes(whole)
    assert "damaged" in _refused(path)
    path.write_bytes(gzip.compress(text) + b"and more")
    assert "damaged" in _refused(path)
    path.write_bytes(b"\x1f\x8b\x08" + b"\x00" * 7 + b"\xff" * 40)
    assert "damaged" in _refused(path)


def _zip(text: bytes, *names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            archive.writestr(name, text)
    return out.getvalue()


PACKERS = {"bz2": bz2.compress, "xz": lzma.compress, "zip": lambda text: _zip(text, "folder/inside.txt")}


@pytest.mark.parametrize("suffix", PACKERS)
def test_other_packings(tmp_path: Path, kind: str, text: bytes, suffix: str) -> None:
    plain, path = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}.{suffix}"
    plain.write_bytes(text)
    whole = PACKERS[suffix](text)
    path.write_bytes(whole)
    assert load_workload(str(path)).jobs == load_workload(str(plain)).jobs
    path.write_bytes(whole[: len(whole) // 2])
    assert any(word in _refused(path) for word in ("truncated", "damaged"))
    path.write_bytes(whole[:30] + bytes(255 - byte for byte in whole[30:60]) + whole[60:])
    assert "damaged" in _refused(path)
    path.write_bytes(text)
    assert "despite its name" in _refused(path)


def test_joined_streams_are_one_text(tmp_path: Path) -> None:
    for suffix in ("bz2", "xz"):
        path = tmp_path / f"a.csv.{suffix}"
        path.write_bytes(PACKERS[suffix](CSV.encode()[:50]) + PACKERS[suffix](CSV.encode()[50:]))
        assert load_workload(str(path)).jobs == load_workload(str(_plain(tmp_path))).jobs


def _plain(folder: Path) -> Path:
    path = folder / "plain.csv"
    path.write_text(CSV)
    return path


def test_packings_that_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for start, words in ((b"\x28\xb5\x2f\xfd", "Zstandard; hint: unpack it first: zstd -d"), (b"PAR1", "is Parquet, not text")):
        path.write_bytes(start + b"and so on")
        assert words in _refused(path)
    other = tmp_path / "log.txt.zst"  # a name that no reader claims
    other.write_bytes(b"\x28\xb5\x2f\xfd" + b"and so on")
    assert "is packed by Zstandard; hint: unpack it first: zstd -d" in _refused(other)
    path.write_bytes(_zip(b"text", "a.csv", "b.csv"))
    assert "2 files in the zip: 'a.csv', 'b.csv'; hint: unpack it" in _refused(path)


def test_a_small_file_does_not_make_its_unpacker_take_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.xz"
    path.write_bytes(lzma.compress(CSV.encode(), filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}]))
    assert "damaged" in _refused(path)


def test_not_gzip_despite_its_name(tmp_path: Path, kind: str, text: bytes) -> None:
    path = tmp_path / f"a.{kind}.gz"
    path.write_bytes(text)
    assert "is not gzip, despite its name; hint:" in _refused(path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_empty(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"a.{kind}{suffix}"
    path.write_bytes(b"")
    assert "the file is empty" in _refused(path)
    path.write_bytes(gzip.compress(b""))
    assert "the file is empty" in _refused(path)


def test_blank_lines_only(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(b"\n\n\n")
    _refused(path)


def test_not_utf8_names_the_line(tmp_path: Path, kind: str, text: bytes) -> None:
    path = tmp_path / f"a.{kind}"
    lines = text.split(b"\n")
    path.write_bytes(b"\n".join([*lines[:41], b"\xff" + lines[41], *lines[42:]]))
    assert f"{path}:42: byte 0xff is not UTF-8; hint:" in _refused(path)


def test_utf16_and_zero_bytes(tmp_path: Path, kind: str, text: bytes) -> None:
    path, plain = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    plain.write_bytes(text)
    for encoding in ("utf-16", "utf-16-be"):
        mark = b"\xfe\xff" if encoding.endswith("be") else b""
        path.write_bytes(mark + text.decode().encode(encoding))
        assert load_workload(str(path)).jobs == load_workload(str(plain)).jobs
    path.write_bytes(text.decode().encode("utf-16")[:-1])
    assert "in the middle of a character" in _refused(path)
    path.write_bytes(b"\xff\xfe" + b"\x00\xdc" * 40)
    assert "is not UTF-16, despite its first bytes" in _refused(path)
    for order in ("LE", "BE"):
        path.write_bytes(text.decode().encode(f"utf-16-{order}"))
        assert f"a zero byte: this is not a text file; hint: UTF-16 without its mark? convert it: iconv -f UTF-16{order}" in _refused(path)
    path.write_bytes(text[:100] + b"\0" + text[100:])
    assert "a zero byte" in _refused(path)


def test_byte_order_mark_and_windows_lines_are_read(tmp_path: Path, kind: str, text: bytes) -> None:
    plain, windows = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    plain.write_bytes(text)
    windows.write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    assert load_workload(str(plain)).jobs == load_workload(str(windows)).jobs


def test_no_line_end_at_the_end(tmp_path: Path, kind: str, text: bytes) -> None:
    plain, cut = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    plain.write_bytes(text)
    cut.write_bytes(text.rstrip(b"\n"))
    assert load_workload(str(plain)).jobs == load_workload(str(cut)).jobs


def test_limits(tmp_path: Path, kind: str, text: bytes) -> None:
    path = tmp_path / f"a.{kind}.gz"
    path.write_bytes(gzip.compress(text))
    assert "more than 1,000 bytes" in _refused(path, limits=Limits(size=1000))
    assert "more than 100" in _refused(path, limits=Limits(rows=100))
    path.write_bytes(gzip.compress(text[:40] + b"1" * (3 << 20)))
    assert "the line is longer than 1,048,576 bytes" in _refused(path)


def test_a_bomb_is_cut_off(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}.gz"
    path.write_bytes(gzip.compress(b"\n" * (40 << 20), 1))
    assert "more than 8,388,608 bytes" in _refused(path, limits=Limits(size=8 << 20))


def test_a_directory_and_a_device(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    path.mkdir()
    assert "is a directory" in _refused(path)
    link = tmp_path / f"b.{kind}"
    link.symlink_to("/dev/zero")
    assert "neither a file nor a pipe" in _refused(link)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path, kind: str, text: bytes) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(text)
    path.chmod(0)
    assert "permission denied" in _refused(path)


def test_a_pipe_is_read(tmp_path: Path, kind: str, text: bytes) -> None:
    path, plain = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    os.mkfifo(path)
    plain.write_bytes(text)
    writer = threading.Thread(target=path.write_bytes, args=(text,))
    writer.start()
    assert load_workload(str(path)).jobs == load_workload(str(plain)).jobs
    writer.join()


def test_blocks_are_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    text = b"".join(b"%d " % k + b"x" * (k % 97) + b"\n" for k in range(60_000))
    path.write_bytes(text)
    found = list(blocks(path, Limits()))
    assert len(found) > 2
    assert b"".join(block.text for block in found) == text
    for block in found:
        assert block.text.endswith(b"\n")
        assert block.text.startswith(b"%d " % (block.first_line - 1))
