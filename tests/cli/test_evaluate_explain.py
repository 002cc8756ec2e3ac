"""`gpuyard evaluate` and `gpuyard explain`: every format, reports, and bad input in one line."""

from __future__ import annotations

import csv
import html
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from gpuyard.cli.common.tables import comparison_table
from gpuyard.errors import UsageError
from gpuyard.experiments.design.spec import parse_seeds
from gpuyard.experiments.studies.evaluation import Held, contender
from gpuyard.experiments.studies.evaluation import evaluate as evaluated
from gpuyard.experiments.studies.explaining import Explanation, Likeness
from gpuyard.features.jobs import JOB
from gpuyard.features.schema import Schema
from gpuyard.report.drawing import new_figure
from gpuyard.report.learned import _draw_likeness
from gpuyard.traces.recipes import Workloads
from support.checkpoints import write_linear
from support.complaints import complaints

GANGS = "gangs:jobs=60,load=1.5 on 16"
SLOTS = {"placement": "fewest", "backfill": "none"}


@pytest.fixture
def checkpoint(tmp_path):
    uses = Workloads([GANGS]).part("train").uses
    return write_linear(tmp_path / "sjf.safetensors", "job", {"estimate": -1.0}, SLOTS, workloads=[GANGS], trained_on=uses)


def test_evaluate_answers_in_words_and_as_data(cli, checkpoint, tmp_path):
    code, out, err = cli("evaluate", checkpoint, "--batches", 3, "--report", tmp_path / "report")
    assert code == 0, err
    assert "best baseline" in out and "gap to the best baseline of each run" in out and "sjf/fewest" not in out
    for name in ("report.html", "csv/summary.csv", "csv/runs.csv"):
        assert (tmp_path / "report" / name).stat().st_size > 100
    data = json.loads(cli("evaluate", checkpoint, "--batches", 3, "-f", "json").out)
    [verdict] = data["verdicts"]
    schedulers = {line["scheduler"]: line for line in data["comparisons"][0]["schedulers"]}
    base = schedulers[verdict["best_baseline"]]["metrics"]["bsld"]["mean"]
    mine = schedulers[verdict["checkpoint"]]["metrics"]["bsld"]["mean"]
    assert verdict["gain"] == pytest.approx(1 - mine / base)
    assert verdict["answer"] in out.replace("\n", " ")
    assert verdict["answer"] in html.unescape((tmp_path / "report" / "report.html").read_text())


def test_evaluate_as_csv_and_markdown(cli, checkpoint):
    rows = list(csv.DictReader(io.StringIO(cli("evaluate", checkpoint, "--batches", 2, "-f", "csv").out)))
    assert [row["scheduler"] for row in rows][:2] == [f"{checkpoint}/fewest/none", "fcfs"]
    assert "| scheduler |" in cli("evaluate", checkpoint, "--batches", 2, "-f", "md").out


def test_explain_in_every_format(cli, checkpoint, tmp_path):
    code, out, err = cli("explain", checkpoint, "--episodes", 2, "--top", 3, "--report", tmp_path / "report")
    assert code == 0, err
    assert "looks at estimate most; of the heuristics it is most like sjf, 100 %" in out
    for name in ("report.html", "table.csv", "table.json", "explanation-1.png", "explanation-1.pdf"):
        assert (tmp_path / "report" / name).stat().st_size > 100
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report" / "table.csv").read_text())))
    assert rows[0]["feature"] == "estimate" and len(rows) == len(JOB.rows) + len(JOB.context)
    data = json.loads((tmp_path / "report" / "table.json").read_text())
    assert data[0]["likeness"][0]["name"] == "sjf" and len(data[0]["features"]) == len(JOB.rows) + len(JOB.context)


def test_explain_a_switch_has_its_values_over_time(cli, tmp_path):
    path = write_linear(
        tmp_path / "meta.safetensors", "switch", [{"bias": 0.2}, {"waiting": 1.0}], {"schedulers": ["fcfs", "sjf"], "period": 60.0},
        objective="balanced", workloads=["family:shape=base|bursty,gpus=4,horizon=1200 on 4"],
    )  # fmt: skip
    code, out, err = cli("explain", path, "--episodes", 4, "--report", tmp_path / "report")
    assert code == 0, err
    assert "choices by regime" in out and "shape=bursty" in out
    assert (tmp_path / "report" / "explanation-1-over-time.png").stat().st_size > 1000
    told = (tmp_path / "report" / "report.html").read_text()
    assert told.count('src="data:image/png;base64,') == len(list((tmp_path / "report").glob("*.png"))) == 2
    assert "What it chooses" in told and "bursty" not in told.partition("<main>")[0]
    assert cli("explain", path, "--episodes", 4, "--report", tmp_path / "one.html").code == 0
    assert (tmp_path / "one.html").stat().st_size > 10_000


def test_seeds_as_text():
    assert parse_seeds("42,43, 50-52,43", "--seeds") == (42, 43, 50, 51, 52)
    assert parse_seeds("", "--seeds") == ()
    for text in ("a", "5-3", "1,,x", "-4"):
        with pytest.raises(UsageError, match="not a seed or a range"):
            parse_seeds(text, "--seeds")


@pytest.mark.parametrize("verb", ["evaluate", "explain"])
def test_what_is_no_checkpoint_of_ours_is_told_in_one_line(cli, checkpoint, tmp_path, verb):
    text = tmp_path / "text.safetensors"
    text.write_text("no tensors")
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(checkpoint.read_bytes()[:-40])
    other = Schema("job", 1, (*JOB.rows[:-1], "colour"), JOB.context)
    odd = write_linear(tmp_path / "odd.safetensors", "job", {"colour": 1.0}, SLOTS, schema=other)
    said = {
        tmp_path / "none.safetensors": "no such checkpoint", text: "text.safetensors", cut: "cut.safetensors",
        odd: "made for other features: row has also 'colour'", "learned:nobody": "learned policy",
    }  # fmt: skip
    for path, expected in said.items():
        code, out, err = cli(verb, path)
        assert code != 0 and out == "" and expected in err and len(complaints(err)) == 1, err


def test_bad_usage_is_told_in_one_line(cli, checkpoint):
    wrong = {
        ("--seeds", "1000000"): "the policy was trained on",
        ("--split", "train"): "the policy was trained on",
        ("--split", "exam"): "unknown split",
        ("--workload", "nothing.swf on 8"): "nothing.swf",
        ("--workload", "gangz on 8"): "gangz",
        ("--batches", "0"): "--batches 0",
        ("--jobs", "some"): "some",
        ("--against", "nope"): "nope",
        ("--metric", "beauty"): "beauty",
        ("--ordering", "sjf"): "decides about a job",
        ("--threads", "0"): "--threads 0",
    }
    for arguments, expected in wrong.items():
        code, out, err = cli("evaluate", checkpoint, *arguments)
        assert code != 0 and out == "" and expected in err and len(complaints(err)) == 1, (arguments, err)
    code, _, err = cli("explain", checkpoint, "--episodes", "0")
    assert code == 2 and "--episodes 0" in err


def test_a_device_choice_from_training_to_explanation(cli, tmp_path):
    text, out = "tasks:jobs=24 on tasks", tmp_path / "run"
    few = ["--envs", 2, "--set", "learner.rollout=24"]
    code, _, err = cli("train", "PickDevice", "--learner", "ppo", "--workload", text, "--steps", 48, *few, "--out", out)
    assert code == 0, err
    code, told, err = cli("evaluate", out / "best.safetensors", "--batches", 2, "--report", tmp_path / "evaluated")
    assert code == 0, err
    assert "optimal-device" in told and "turnaround" in told and (tmp_path / "evaluated" / "report.html").stat().st_size > 100
    code, told, err = cli("explain", out / "best.safetensors", "--episodes", 2, "--report", tmp_path / "explained")
    assert code == 0, err
    assert "choices by regime" in told and "intensity: highest third" in told
    assert (tmp_path / "explained" / "explanation-1.png").stat().st_size > 100


def test_explain_says_how_many_episodes_had_no_choice(cli, checkpoint):
    quiet = ("--workload", GANGS, "--workload", "gangs:jobs=1 on 16")
    code, out, err = cli("explain", checkpoint, *quiet, "--episodes", 4)
    assert code == 0, err
    assert "decisions in 2 runs of" in out and "2 of 4 episodes had no choice" in out
    code, out, err = cli("explain", checkpoint, *quiet[2:], "--episodes", 2)
    assert code == 2 and out == "" and "none of 2 episodes leaves it a choice" in err and len(complaints(err)) == 1


def test_a_choice_of_hosts_by_a_path_without_a_dot(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "host").mkdir()
    slots = {"ordering": "fcfs", "backfill": "none"}
    eda = ["eda:jobs=40"]
    write_linear(
        tmp_path / "host" / "best.safetensors", "host", {"cores_left": -1.0}, slots, objective="wait", workloads=eda,
        cluster="hosts:count=6,seed={seed}",
    )  # fmt: skip
    text, label = "host/best.safetensors", "fcfs/./host/best.safetensors/none"
    for call in (
        ("evaluate", text, "--batches", 2), ("explain", text, "--episodes", 2),
        ("compare", *eda, "--cluster", "hosts:count=6", "--scheduler", "fcfs", "--scheduler", text, "--seeds", 2),
        ("simulate", *eda, "--cluster", "hosts:count=6", "--scheduler", f"fcfs/{text}/none"),
    ):  # fmt: skip
        code, out, err = cli(*call)
        assert code == 0, err
        assert (text if call[0] == "explain" else label) in out


def test_how_many_differ_is_said_as_it_is(checkpoint):
    each = contender(str(checkpoint))
    [found] = evaluated([each], Held(batches=6))
    others, base = [line for line in found.lines if line.versus], next(line for line in found.lines if not line.versus)
    for low, expected in (
        (-1.0, "none of 2 differ from the baseline"),
        (0.5, "2 of 2 differ from the baseline (95 % interval excludes 0)"),
    ):
        changed = [
            replace(line, versus=replace(line.versus, difference=replace(line.versus.difference, low=low, high=1.0))) for line in others
        ]
        table = replace(found.table, lines=(base, *changed[:2]))
        assert expected in comparison_table(replace(found, tables=(table,)), table).caption


@pytest.mark.parametrize("rank, bars", [(float("nan"), 1), (0.4, 2)])
def test_bars_lie_around_their_labels(rank, bars):
    likeness = tuple(Likeness(name, 0.5, rank, 10) for name in ("first", "best"))
    axes = new_figure(4, 3).subplots()
    _draw_likeness(axes, Explanation("a", "host", "w", "wait", 1, 10, (), likeness=likeness))
    for row, tick in enumerate(axes.get_yticks()):
        beside = [bar for bar in axes.patches if abs(bar.get_y() + bar.get_height() / 2 - tick) < 0.5]
        assert len(beside) == bars and tick == row
        assert np.mean([bar.get_y() + bar.get_height() / 2 for bar in beside]) == pytest.approx(tick)
