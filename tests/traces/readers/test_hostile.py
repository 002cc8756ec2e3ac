"""Files made to hurt: every reader ends with one clear error, and none with a file that is larger than its limits."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.traces import READERS, Limits, load_workload

MB = 1 << 20
SMALL = Limits(size=4 * MB, line=MB // 2, rows=100_000)
TEXTS = {
    "line feeds": b"\n" * MB,
    "empty objects": b'{"jobs": [' + b"{}," * (MB // 6) + b"{}]}",
    "a list of empty objects": b"[" + b"{}," * (MB // 6) + b"{}]",
    "nested lists": b'{"jobs": ' + b"[" * 100_000,
    "a long line": b"x" * MB,
    "a header of blanks": b"; a: x" + b" " * (MB // 4) + b"x\n",
    "short comments": b";\n" * (MB // 2),
    "commas": b"," * (MB // 4) + b"\n" + b"1," * (MB // 8) + b"\n",
    "quotes": b'"' * (MB // 4) + b"\n",
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", list(READERS))
def test_no_text_does_more_than_be_refused(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_bytes(TEXTS[text])
    with pytest.raises(GpuyardError) as told:
        load_workload(str(path), reader=name, limits=SMALL)
    assert len(str(told.value)) < 2000


@pytest.mark.parametrize("name", list(READERS))
def test_a_gzip_bomb_ends_at_the_limit(name: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.txt.gz"
    with gzip.open(path, "wb") as stream:
        for _ in range(64):
            stream.write(b"1 2 3 4 5 6 7 8 9\n" * (MB // 18))
    assert path.stat().st_size < MB
    with pytest.raises(GpuyardError):
        load_workload(str(path), reader=name, limits=SMALL)
