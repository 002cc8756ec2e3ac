"""Reports and files that are written call users user-1, user-2 …, the same everywhere, unless `--show-names` is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.traces import load_workload

PEOPLE = ("zoe", "alice", "bob")  # in the order of their first jobs


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log in which everybody has jobs, and the first user the fewest."""
    rows = [f"{k},{40 * k},{40 * k + 30 * (k % 3)},{100 + 90 * (k % 7)},2,{PEOPLE[0 if k < 2 else 1 + k % 2]}" for k in range(60)]
    path = tmp_path / "site.csv"
    path.write_text("\n".join(["id,submit,start,runtime,gpus,user", *rows]) + "\n")
    return path


VERBS = {
    "compare LOG --report OUT --cluster 1x8:gpu --scheduler fcfs --scheduler sjf": "answer.html",
    "simulate LOG --jobs-out OUT --cluster 1x8:gpu": "jobs.csv",
    "trace convert LOG OUT": "converted.csv",
    "trace perturb LOG OUT --apply runtimes:0.5": "perturbed.csv",
    "trace sample LOG OUT --user alice --user bob": "sampled.csv",
}


@pytest.mark.parametrize("verb", VERBS)
def test_users_have_one_pseudonym_everywhere(cli: Callable, log: Path, tmp_path: Path, verb: str) -> None:
    out = tmp_path / VERBS[verb]
    code, _, err = cli(*[{"LOG": log, "OUT": out}.get(word, word) for word in verb.split()])
    assert code == 0, err
    text = out.read_text()
    assert not [name for name in PEOPLE if name in text.replace(str(log), "")]
    if out.suffix == ".csv":
        assert "--show-names keeps their names" in err
        written, given = load_workload(str(out)), load_workload(str(log))
        who = {job: given.jobs.users[user] for job, user in zip(given.jobs.id.tolist(), given.jobs.user.tolist(), strict=True)}
        for job, user in zip(written.jobs.id.tolist(), written.jobs.user.tolist(), strict=True):
            assert written.jobs.users[user] == f"user-{PEOPLE.index(who[job]) + 1}"
    else:
        assert "user-2" in text and "--show-names shows their names" in text


@pytest.mark.parametrize("verb", VERBS)
def test_names_are_shown_where_that_is_asked_for(cli: Callable, log: Path, tmp_path: Path, verb: str) -> None:
    out = tmp_path / VERBS[verb]
    code, _, err = cli(*[{"LOG": log, "OUT": out}.get(word, word) for word in verb.split()], "--show-names")
    assert code == 0, err
    assert "alice" in out.read_text() and "user-1" not in out.read_text()
    assert "--show-names" not in err


def test_generated_users_are_nobody_and_keep_their_names(cli: Callable, tmp_path: Path) -> None:
    assert cli("trace", "convert", "demo:jobs=30", tmp_path / "demo.csv").code == 0
    assert "user-1" not in (tmp_path / "demo.csv").read_text()


def test_who_has_no_name_gets_none(cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("id,submit,runtime,gpus\n1,0,10,1\n2,5,10,1\n")
    code, _, err = cli("trace", "convert", tmp_path / "log.csv", tmp_path / "out.csv")
    assert code == 0 and "--show-names" not in err
    assert "user" not in (tmp_path / "out.csv").read_text()
