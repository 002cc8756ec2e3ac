"""`gpuyard decide` says what would be done now, and changes nothing."""

from __future__ import annotations

import json

from tests.live.state.test_file import busy

from gpuyard.live.state.file import write_snapshot


def test_table_json_and_all(cli, tmp_path):
    path = tmp_path / "s.json"
    write_snapshot(busy(), path)
    before = path.read_bytes()
    code, out, err = cli("decide", path)
    assert code == 0
    assert "waiting jobs would start now" in out
    assert "1 more wait and may not start yet: 1 × it is held." in out
    assert "note: one line could not be read" in err
    data = json.loads(cli("decide", path, "--scheduler", "fcfs", "-f", "json").out)
    assert data["scheduler"] == "fcfs"
    assert len(data["jobs"]) == len(busy().snapshot.waiting)
    assert data["ineligible"] == {"99": "it is held"}
    assert path.read_bytes() == before


def test_a_file_that_is_none(cli, tmp_path):
    (tmp_path / "s.json").write_text("{}")
    code, _, err = cli("decide", tmp_path / "s.json")
    assert code == 1
    assert "is not a snapshot" in err
    assert "hint: gpuyard snapshot writes such files" in err
    assert cli("decide", tmp_path / "none.json").code == 1


def test_http_without_a_token_file_is_refused(cli):
    done = cli("decide", "--serve", "0")
    assert done.code == 2
    assert "HTTP needs a token" in done.err
    assert "which snapshot?" in cli("decide").err
