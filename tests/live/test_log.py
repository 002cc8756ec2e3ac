"""The rotated log keeps the newest records within bounds, and a full disk stops nothing."""

from __future__ import annotations

from gpuyard.live.log import RotatedLog, read_lines


def test_the_oldest_go_and_the_order_stays(tmp_path):
    path = tmp_path / "a" / "log.jsonl"
    log = RotatedLog(path, each=300, files=3)
    for k in range(100):
        log.add({"k": k, "text": "é" * 10})
    assert sorted(file.name for file in path.parent.iterdir()) == ["log.jsonl", "log.jsonl.1", "log.jsonl.2"]
    assert all(file.stat().st_size <= 300 for file in path.parent.iterdir())
    kept = [each["k"] for each in read_lines(path)]
    assert kept == list(range(kept[0], 100))
    assert len(kept) > 10
    with path.open("ab") as file:
        file.write(b'{"k": 10')  # cut short by a crash
    assert [each["k"] for each in read_lines(path)] == kept


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    log = RotatedLog(tmp_path / "file" / "log.jsonl")
    log.add({"k": 1})
    assert "cannot be written" in log.problem
