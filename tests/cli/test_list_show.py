"""`gpuyard list` and `gpuyard show`."""

from __future__ import annotations

import csv
import io
import json

import pytest

from gpuyard.cli.listing import KINDS, POLICIES
from support.complaints import complaints

NAMES = [record["name"] for records in KINDS.values() for record in records()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["table", "json", "csv", "md"])
def test_lists(cli, kind, how):
    code, out, err = cli("list", kind, "-f", how)
    assert (code, err) == (0, "")
    for record in KINDS[kind]():
        assert record["name"] in out


def test_the_overview_names_everything(cli):
    everything = json.loads(cli("list", "-f", "json").out)
    assert list(everything) == list(KINDS)
    assert {name for names in everything.values() for name in names} >= set(NAMES)  # files of policies may have registered more
    assert {row["name"] for row in csv.DictReader(io.StringIO(cli("list", "-f", "csv").out))} >= set(NAMES)
    assert "fcfs" in cli("list").out


def test_an_unknown_kind(cli):
    code, _, err = cli("list", "orderinx")
    assert code == 2
    assert "did you mean 'orderings'?" in err


@pytest.mark.parametrize("name", sorted(set(NAMES)))
def test_everything_that_is_listed_can_be_shown(cli, name):
    code, out, err = cli("show", name, "-f", "json")
    assert (code, err) == (0, "")
    assert all(found["name"] == name and len(found) > 2 for found in json.loads(out))


def test_a_name_of_two_things_shows_both(cli):
    assert [found["kind"] for found in json.loads(cli("show", "srpt", "-f", "json").out)] == ["ordering", "preemption"]


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("bsld.p95", "metric", "Feitelson"),
        ("16x8:a100", "cluster", "128 devices"),
        ("256", "cluster", "256 devices"),
        ("demo:jobs=100", "workload", "100"),
        ("sjf/best/easy", "scheduler", "sjf/best/easy"),
        ("meta:backlog(fcfs, sjf)", "meta-scheduler", "backlog"),
    ],
)
def test_what_is_not_a_name(cli, text, kind, told):
    code, out, _ = cli("show", text)
    assert code == 0
    assert kind in out
    assert told in out


def test_files(cli, tmp_path):
    (tmp_path / "jobs.csv").write_text("submit,runtime,gpus,user\n0,10,1,ann\n60,10,2,bob\n")
    out = cli("show", tmp_path / "jobs.csv", "--cluster", "node8").out
    assert "ann, bob" in out
    assert "load on node8" in out
    (tmp_path / "c.toml").write_text("[[nodes]]\ngpus = 4\n")
    assert "4 devices" in cli("show", tmp_path / "c.toml").out


def test_a_saved_result(cli, tmp_path):
    cli("simulate", "demo:jobs=30", "--cluster", "node8", "--out", tmp_path / "kept")
    code, out, _ = cli("show", tmp_path / "kept")
    assert code == 0
    assert "manifest" in out
    assert "bounded slowdown" in out
    data = json.loads(cli("show", tmp_path / "kept", "-f", "json").out)
    assert data["manifest"]["measured"] is False
    assert data["counts"]["jobs"] == 30


def test_list_policies_has_all_slots_and_deciders(cli):
    shown = cli("list", "policies")
    assert shown.code == 0
    assert all(f"\n{kind}\n" in f"\n{shown.out}" for kind in POLICIES)
    found = json.loads(cli("list", "policies", "-f", "json").out)
    assert {kind: [each["name"] for each in found[kind]] for kind in POLICIES} == {
        kind: [each["name"] for each in KINDS[kind]()] for kind in POLICIES
    }
    rows = list(csv.DictReader(io.StringIO(cli("list", "policies", "-f", "csv").out)))
    assert len(rows) == sum(map(len, found.values()))


@pytest.mark.parametrize(
    ("given", "kind"), [("metric", "metrics"), ("device", "devices"), ("switch", "switches"), ("presets", "clusters"), ("gpus", "devices")]
)
def test_a_kind_is_found_in_the_singular_and_by_other_names(cli, given, kind):
    assert cli("list", given, "-f", "json") == cli("list", kind, "-f", "json")


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("sjff", 2, "did you mean 'sjf'?"),
        ("nope.csv", 1, "no such file"),
        ("nope.toml", 1, "no such cluster file"),
        ("sjf/bset", 2, "did you mean 'best'?"),
        ("wait.p96", 2, "p96"),
        ("demo:jbs=1", 2, "did you mean 'jobs'?"),
        (".", 1, "not a saved result"),
        ("16y8", 2, "16x8:a100"),
    ],
)
def test_what_is_not_there(cli, tmp_path, monkeypatch, text, code, told):
    monkeypatch.chdir(tmp_path)
    outcome = cli("show", text)
    assert (outcome.code, outcome.out) == (code, "")
    (complaint,) = complaints(outcome.err)
    assert told in complaint


def test_a_damaged_result(cli, tmp_path):
    (tmp_path / "manifest.json").write_text("{")
    code, out, err = cli("show", tmp_path)
    assert (code, out) == (1, "")
    assert err.startswith("gpuyard: error: ")
