"""The training loop: a resumed run is one that was never stopped, byte for byte; every bad input in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from gpuyard.cli.main import run
from gpuyard.cli.train import facts
from gpuyard.errors import GpuyardError, UsageError
from gpuyard.learn.run.folder import BEST, CONFIG, LAST, METRICS, STATE, Folder
from gpuyard.learn.run.plan import TrainingRequest, plan_again, plan_of
from gpuyard.learn.run.training import train
from gpuyard.networks.checkpoint import read_arrays, read_checkpoint, write_arrays
from gpuyard.traces.recipes import Workloads
from gpuyard.traces.splits import overlap
from support.complaints import ERROR, HINT, complaints

SMALL = (
    "--workload", "demo:jobs=60,load=2", "--envs", "8", "--set", "rollout=8", "--set", "minibatches=2", "--set", "width=4",
    "--set", "validate_every=3", "--set", "save_every=4", "--set", "validation_episodes=2",
)  # fmt: skip
STEPS = 64 * 14  # 14 updates of 64 steps


def request(toy, **changes):
    sets = tuple(SMALL[k + 1] for k, word in enumerate(SMALL) if word == "--set")
    base = TrainingRequest(toy, "ppo", ("demo:jobs=60,load=2",), sets=sets, flags={"training": {"steps": STEPS, "envs": 8}})
    return dataclasses.replace(base, **changes)


def trained(plan, folder, *, resume=False, stop_after=None):
    """Train; `stop_after` sends an interrupt of the operating system after that update."""

    def watch(trainer):
        if trainer.progress.update == stop_after:
            os.kill(os.getpid(), signal.SIGINT)

    said = []
    return train(plan, folder, resume=resume, say=said.append, watch=watch), said


@pytest.fixture(scope="module")
def unbroken(toy_program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    outcome, _ = trained(plan_of(request("Toy")), folder)
    return folder, outcome


def metrics_of(folder):
    """The lines without what a clock has a part in."""
    lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.startswith("time/") and name != "steps_per_second"} for line in lines]


def assert_same(folder, other):
    for name in (BEST, LAST):
        assert (folder / name).read_bytes() == (other / name).read_bytes()
    assert (folder / STATE).read_bytes() == (other / STATE).read_bytes()
    assert metrics_of(folder) == metrics_of(other)


def test_a_training_leaves_checkpoints_with_all_that_is_known_of_them(unbroken):
    folder, outcome = unbroken
    assert (outcome.progress.update, outcome.progress.steps, outcome.interrupted) == (14, STEPS, False)
    assert [row["update"] for row in outcome.progress.curve] == [0, 3, 6, 9, 12, 14]
    assert set(outcome.baselines) == {"fcfs", "sjf"}
    best, last = read_checkpoint(folder / BEST).manifest, read_checkpoint(folder / LAST).manifest
    assert last.training.steps == STEPS
    assert last.objective == "wait"
    assert best.curve[-1]["score"] == min(row["score"] for row in outcome.progress.curve) == outcome.progress.best
    assert last.curve[0]["validation/sjf"] == outcome.baselines["sjf"]
    assert [row["update"] for row in metrics_of(folder)] == list(range(1, 15))
    assert overlap(last.training, Workloads(["demo on 8"]).part("test").uses) is None
    assert overlap(last.training, Workloads(["demo on 8"]).part("train").uses) is not None
    assert overlap(last.training, Workloads(["demo on 8"]).part("validation").uses) is not None


def test_the_same_plan_gives_the_same_bytes(unbroken, tmp_path):
    trained(plan_of(request("Toy")), tmp_path / "again")
    assert_same(unbroken[0], tmp_path / "again")


@pytest.mark.parametrize("update", [2, 3, 4, 12])
def test_interrupted_and_resumed_is_never_stopped(unbroken, tmp_path, update):
    folder = tmp_path / "run"
    outcome, said = trained(plan_of(request("Toy")), folder, stop_after=update)
    assert outcome.interrupted
    assert outcome.progress.update == update
    assert any("stopping after this update" in line for line in said)
    plan = plan_again(Folder.found(folder).read_config(), TrainingRequest(), str(folder))
    outcome, _ = trained(plan, folder, resume=True)
    assert not outcome.interrupted
    assert_same(unbroken[0], folder)


def test_a_training_of_the_first_version_is_resumed_as_if_its_settings_had_never_been_renamed(unbroken, tmp_path):
    folder = tmp_path / "run"
    trained(plan_of(request("Toy")), folder, stop_after=4)
    record = json.loads((folder / CONFIG).read_text())
    renamed = {"discount": "gamma", "max_grad_norm": "max_gradient", "schedule": "rate"}
    learner = record["settings"]["learner"]
    assert set(renamed) <= set(learner)
    record["settings"]["learner"] = {renamed.get(name, name): value for name, value in learner.items()}
    (folder / CONFIG).write_text(json.dumps(record))
    trained(plan_again(Folder.found(folder).read_config(), TrainingRequest(), str(folder)), folder, resume=True)
    assert_same(unbroken[0], folder)


@pytest.mark.slow  # two compilations each
@pytest.mark.parametrize("learner", ["rainbow", "sac", "linucb"])
def test_any_learner_interrupted_and_resumed_is_never_stopped(toy, tmp_path, learner):
    sets = ("validate_every=3", "save_every=4", "validation_episodes=2", f"plain={learner != 'sac'}")
    sets += ("width=4", "warmup=64", "capacity=512", "batch_size=8", "updates_per_round=4") if learner != "linucb" else ()
    asked = request(toy, learner=learner, sets=sets)
    trained(plan_of(asked), tmp_path / "whole")
    stopped, _ = trained(plan_of(asked), tmp_path / "run", stop_after=2 if learner == "linucb" else 7)
    assert stopped.interrupted
    plan = plan_again(Folder.found(tmp_path / "run").read_config(), TrainingRequest(), "run")
    assert plan == plan_of(asked)
    trained(plan, tmp_path / "run", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "run")


def test_killed_and_resumed_is_never_stopped(unbroken, tmp_path):
    """A process that dies leaves the last saved state behind, and metrics of later updates."""
    folder = tmp_path / "run"

    class Killed(Exception):
        pass

    def die(trainer):
        if trainer.progress.update == 7:
            raise Killed

    plan = plan_of(request("Toy"))
    with pytest.raises(Killed):
        train(plan, folder, resume=False, say=lambda _: None, watch=die)
    assert metrics_of(folder)[-1]["update"] == 7
    assert json.loads(read_arrays(folder / STATE)[1]["progress"])["update"] == 4
    trained(plan, folder, resume=True)
    assert_same(unbroken[0], folder)


def test_policies_of_every_so_many_updates_are_kept_and_written_again_where_a_training_goes_on_before_them(toy_program, tmp_path):
    plan = plan_of(request("Toy", sets=(*request("Toy").sets, "keep_every=3")))
    trained(plan, tmp_path / "whole")
    kept = [f"update-{update:06d}.safetensors" for update in (3, 6, 9, 12)]
    assert sorted(path.name for path in (tmp_path / "whole").glob("update-*")) == kept
    manifests = [read_checkpoint(tmp_path / "whole" / name).manifest for name in kept]
    assert [manifest.training.steps for manifest in manifests] == [64 * update for update in (3, 6, 9, 12)]
    assert [manifest.curve[-1]["update"] for manifest in manifests] == [3, 6, 9, 12]

    folder, seen = tmp_path / "run", []

    def watch(trainer):
        seen.append(sorted(path.name for path in folder.glob("update-*")))
        if len(seen) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(plan, folder, resume=False, say=lambda _: None, watch=watch)
    assert seen[-1] == kept[:2]
    train(plan, folder, resume=True, say=lambda _: None, watch=watch)  # from update 4, the last that was saved
    assert seen[7] == kept[:1]
    assert all((folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in kept)
    assert_same(tmp_path / "whole", folder)


@pytest.mark.slow  # three processes, each of which starts JAX
def test_a_real_ctrl_c_saves_and_the_rest_gives_the_same_bytes(toy_program, tmp_path):
    """From the command line, in processes of their own."""

    def command(folder, *more):
        # many updates, so that the signal comes in the middle of them
        return [sys.executable, str(toy_program), "train", *more, "--out", str(folder), "-f", "json"]

    begin = ("toy", *SMALL, "--steps", str(64 * 200))
    running = subprocess.Popen(command(tmp_path / "a", *begin), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(1200):
            if (tmp_path / "a" / STATE).exists() or running.poll() is not None:
                break
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert f"gpuyard train --resume --out {tmp_path / 'a'}" in err
    stopped = json.loads(out)
    assert stopped["interrupted"]
    assert 0 < stopped["updates"] < 200
    rest = subprocess.run(command(tmp_path / "a", "--resume"), capture_output=True, text=True, check=True)
    whole = subprocess.run(command(tmp_path / "b", *begin), capture_output=True, text=True, check=True)
    assert json.loads(rest.stdout)["curve"] == json.loads(whole.stdout)["curve"]
    assert_same(tmp_path / "a", tmp_path / "b")


def test_no_improvement_for_long_ends_it(toy, tmp_path):
    changes = request(toy).sets + ("patience=2", "threshold=1e12")
    outcome, _ = trained(plan_of(request(toy, sets=changes)), tmp_path / "run")
    assert outcome.progress.stopped_early
    assert [row["update"] for row in outcome.progress.curve] == [0, 3, 6]


def test_a_policy_is_called_what_it_is_to_be_called(toy, unbroken, tmp_path):
    sets = (*request(toy).sets, "training.name=small", "training.title=a small one")
    plan = plan_of(request(toy, sets=sets, flags={"training": {"steps": 64, "envs": 8}}))
    trained(plan, tmp_path / "run")
    named, unnamed = (read_checkpoint(folder / LAST).manifest for folder in (tmp_path / "run", unbroken[0]))
    assert (named.name, named.title) == ("small", "a small one")
    assert (unnamed.name, unnamed.title) == ("toy-ppo-0", unnamed.title)
    assert unnamed.title


def test_unless_it_is_said_how_often_it_validates_fifty_times(toy, tmp_path):
    sets = tuple(text for text in request(toy).sets if "_every" not in text)
    outcome, _ = trained(plan_of(request(toy, sets=sets, flags={"training": {"steps": 64 * 100, "envs": 8}})), tmp_path / "run")
    assert [row["update"] for row in outcome.progress.curve] == list(range(0, 101, 2))


def test_more_steps_may_be_asked_for_when_resuming(toy, unbroken, tmp_path):
    folder = tmp_path / "run"
    trained(plan_of(request(toy, flags={"training": {"steps": 128, "envs": 8}})), folder)
    plan = plan_again(Folder.found(folder).read_config(), TrainingRequest(flags={"training": {"steps": "256"}}), str(folder))
    outcome, _ = trained(plan, folder, resume=True)
    assert outcome.progress.steps == 256


def test_tensorboard_reads_what_is_written(unbroken):
    from tensorboardX.proto import event_pb2

    folder, outcome = unbroken
    (file,) = (folder / "tensorboard").iterdir()
    data, at, tags = file.read_bytes(), 0, {}
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
        for value in event.summary.value:
            tags.setdefault(value.tag, []).append((event.step, value.simple_value))
        at += 16 + length
    assert [step for step, _ in tags["validation/wait"]] == [row["steps"] for row in outcome.progress.curve]
    steps = [row["steps"] for row in outcome.progress.curve]
    for tag in ("env/wait", "env/turnaround", "env/utilization", "env/wait/fcfs", "env/utilization/sjf", "gain/fcfs", "gain/best_baseline"):
        assert [step for step, _ in tags[tag]] == steps, tag
    assert [value for _, value in tags["env/wait"]] == [value for _, value in tags["validation/wait"]]  # it is the objective here
    gains = [1 - mine / theirs for (_, mine), (_, theirs) in zip(tags["validation/wait"], tags["validation/fcfs"], strict=True)]
    assert [value for _, value in tags["gain/fcfs"]] == pytest.approx(gains, abs=1e-5)
    assert tags["gain/best_baseline"][-1][1] == min(values[-1][1] for tag, values in tags.items() if tag.startswith("gain/"))
    assert {"validation/fcfs", "validation/sjf", "return", "loss/policy", "gradient", "policy/entropy", "steps_per_second"} <= set(tags)


def test_a_saved_configuration_loads_back(toy, unbroken, tmp_path):
    """The same plan; other words of the request win, and lengths follow from the new number of steps."""
    file = unbroken[0] / CONFIG
    first, again = plan_of(request(toy)), plan_of(TrainingRequest(file=file))
    assert again == dataclasses.replace(first, command="")
    longer = plan_of(TrainingRequest(file=file, seed=7, sets=("width=8",), flags={"training": {"steps": str(2 * STEPS)}}))
    assert (longer.seed, longer.config.width, longer.config.updates) == (7, 8, 2 * first.config.updates)
    assert longer.config.minibatches == first.config.minibatches != type(first.config)().minibatches
    trained(dataclasses.replace(again, command=first.command), tmp_path / "run")
    assert (tmp_path / "run" / BEST).read_bytes() == (unbroken[0] / BEST).read_bytes()


@pytest.mark.parametrize(
    "text", ["[]", "{}", "nonsense", '{"env": "PickJob", "learner": "ppo", "settings": 3}', '{"env": 3, "learner": 4}']
)
def test_another_json_file_is_no_configuration(text, tmp_path):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(GpuyardError, match=r"c\.json"):
        plan_of(TrainingRequest(file=tmp_path / "c.json"))


def test_a_program_that_a_saved_configuration_names_is_not_run(unbroken, tmp_path):
    record = json.loads((unbroken[0] / CONFIG).read_text())
    record["workloads"] = ["./evil.py:make"]
    (tmp_path / "c.json").write_text(json.dumps(record))
    with pytest.raises(UsageError, match="names a program"):
        plan_of(TrainingRequest(file=tmp_path / "c.json"))


def test_without_tensorboardx_it_is_one_line(toy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX.record_writer", None)
    _, said = trained(plan_of(request(toy, flags={"training": {"steps": 64, "envs": 8}})), tmp_path / "run")
    assert sum("no TensorBoard files" in line for line in said) == 1


# ── the command line ──


def test_a_best_policy_that_is_the_first_one_is_a_warning(toy, tmp_path, capsys):
    assert run(["train", "Toy", *SMALL, "--updates", "3", "--set", "learning_rate=0", "--out", str(tmp_path / "run")]) == 0
    assert "gpuyard: warning: best.safetensors is untrained: no update was better" in capsys.readouterr().err


def fails(capsys, *arguments):
    """The one error that a wrong call ends with, and its hint."""
    code = run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert code in (1, 2)
    assert out == ""
    assert "Traceback" not in err
    return complaints("\n".join(line for line in err.splitlines() if line.startswith((ERROR, HINT))))[-1]


WRONG = {
    ("train", "Tooy", *SMALL): "did you mean 'Toy'",
    ("train", "gpuyard/Toy-v7", *SMALL): "did you mean 'gpuyard/Toy-v0'",
    ("train", *SMALL): "no environment to train in",
    ("train", "Toy", "--learner", "ppoo", *SMALL): "did you mean 'ppo'",
    ("train", "Toy", *SMALL, "--set", "learning_rat=1"): "did you mean 'learning_rate'",
    ("train", "Toy", *SMALL, "--set", "gamma=much"): "learner.discount = 'much' is not a finite number",
    ("train", "Toy", *SMALL, "--set", "epochs=1.5"): "learner.epochs = '1.5' is not a whole number",
    ("train", "Toy", *SMALL, "--set", "flavour=salty"): "unknown value of env.flavour 'salty'",
    ("train", "Toy", *SMALL, "--set", "epochs"): "is not NAME=VALUE",
    ("train", "Toy", *SMALL, "--set", "patience=-1"): "training: patience = -1 is below 0",
    ("train", "Toy", *SMALL, "--set", "training.name=Big One"): "training.name = 'Big One' is not a valid name",
    ("train", "Toy", *SMALL, "--set", "save_every=9"): "'save_every' is given twice",
    ("train", "Toy", *SMALL, "--config", "nowhere.toml"): "nowhere.toml: cannot be read: No such file",
    ("train", "Toy", *SMALL, "--objective", "bsd"): "did you mean 'bsld'",
    ("train", "Toy", *SMALL, "--network", "kernal"): "kernal",
    ("train", "Toy", *SMALL, "--device", "tpu"): "unknown device 'tpu'",
    ("train", "Toy", *SMALL, "--seed", "-1"): "seed -1 does not lie",
    ("train", "Toy", *SMALL, "--steps", "many"): "training.steps = 'many' is not a whole number",
    ("train", "Toy", *SMALL, "--set", "broken=true"): "reward",
    ("train", "Toy"): "no workload to learn from",
    ("train", "Toy", "--workload", "famly on 8"): "did you mean 'family'",
    ("train", "Toy", "--resume"): "give its folder with --out",
}


@pytest.mark.parametrize("arguments", list(WRONG))
def test_wrong_input_is_one_clear_line(toy, capsys, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    assert WRONG[arguments] in fails(capsys, *arguments)


def test_validation_on_training_data_is_refused_and_both_are_named(toy, capsys, tmp_path):
    log = tmp_path / "log.swf"
    log.write_text("".join(f"{k} {k * 100} 0 50 1 -1 -1 1 100 -1 1 1 1 -1 1 1 -1 -1\n" for k in range(1, 400)))
    found = fails(
        capsys, "train", toy, "--workload", f"{log}[jobs=10; until=0.8] on 8", "--validation", f"{log}[jobs=20; from=0.1] on 8",
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert "cannot be validated on: it is trained on" in found
    assert "[jobs=20; from=0.1]" in found
    assert "[jobs=10; until=0.8]" in found


def test_a_folder_that_is_there_is_refused(toy, capsys, unbroken, tmp_path):
    folder, _ = unbroken
    assert "exists already; hint: add --resume" in fails(capsys, "train", toy, *SMALL, "--out", folder)
    (tmp_path / "file").write_text("mine")
    assert "exists already; hint: give another --out" in fails(capsys, "train", toy, *SMALL, "--out", tmp_path)
    assert "no training run to resume" in fails(capsys, "train", toy, "--resume", "--out", tmp_path / "none")


CHANGED = {
    ("--set", "gamma=0.5"): "was started with learner.discount = 0.99, not 0.5",
    ("--set", "rows=7"): "was started with env.rows = 4, not 7",
    ("--workload", "lublin on 8"): "was started with workloads = ['demo:jobs=60,load=2'], not ['lublin on 8']",
    ("--seed", "5"): "was started with seed = 0, not 5",
    ("--objective", "bsld"): "was started with objective = wait, not bsld",
}


@pytest.mark.parametrize("change", list(CHANGED))
def test_resuming_with_other_settings_is_refused(toy, capsys, unbroken, change):
    assert CHANGED[change] in fails(capsys, "train", toy, "--resume", "--out", unbroken[0], *change)


def test_a_finished_training_may_be_resumed_and_stays_as_it_is(toy, capsys, unbroken):
    folder, _ = unbroken
    before = (folder / LAST).read_bytes()
    assert run(["train", "--resume", "--out", str(folder), "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["updates"] == 14
    assert (folder / LAST).read_bytes() == before


def test_a_longer_training_goes_on_learning(toy_program, unbroken, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(unbroken[0], folder)
    longer = plan_again(Folder(folder).read_config(), TrainingRequest(flags={"training": {"steps": 2 * STEPS}}), str(folder))
    assert longer.config.updates == 28
    trained(longer, folder, resume=True)
    rates = [row["learning_rate"] for row in metrics_of(folder)]
    assert rates[14:] == pytest.approx([1e-3 * (28 - k) / 28 for k in range(14, 28)])
    given = plan_of(request("Toy", sets=(*request("Toy").sets, "updates=20")))
    trained(given, tmp_path / "given")
    again = plan_again(Folder(tmp_path / "given").read_config(), TrainingRequest(flags={"training": {"steps": 2 * STEPS}}), "given")
    assert again.config.updates == 20  # was asked for


@pytest.mark.parametrize("name", ["seed", "agent/.params.head.0.bias", "envs/seed"])
@pytest.mark.parametrize("change", ["gone", "other"])
def test_a_state_of_something_else_is_told(toy, capsys, unbroken, tmp_path, name, change):
    folder = tmp_path / "run"
    shutil.copytree(unbroken[0], folder)
    arrays, texts = read_arrays(folder / STATE)
    key = next(key for key in arrays if key == name or key.startswith(name.rpartition("/")[0] + "/"))
    if change == "gone":
        del arrays[key]
    else:
        arrays[key] = np.zeros((2, 0, 3), np.float32)
    write_arrays(folder / STATE, arrays, texts)
    error = fails(capsys, "train", toy, "--resume", "--out", folder)
    assert str(folder) in error or "saved" in error
    assert "bug in gpuyard" not in error


@pytest.mark.parametrize("record", ["3", "{}", '{"update": "x"}', "[]"])
def test_a_state_that_does_not_say_where_it_stood_is_told(toy, capsys, unbroken, tmp_path, record):
    folder = tmp_path / "run"
    shutil.copytree(unbroken[0], folder)
    arrays, _ = read_arrays(folder / STATE)
    write_arrays(folder / STATE, arrays, {"progress": record})
    assert "saved by another version" in fails(capsys, "train", toy, "--resume", "--out", folder)


def test_a_trace_that_has_changed_is_noticed(toy, capsys, tmp_path):
    log = tmp_path / "log.swf"
    text = "".join(f"{k} {k * 100} 0 50 1 -1 -1 1 100 -1 1 1 1 -1 1 1 -1 -1\n" for k in range(1, 400))
    log.write_text(text)
    assert run(["train", toy, *SMALL[2:], "--workload", f"{log}[jobs=20] on 8", "--steps", "64", "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    log.write_text(text.replace(" 50 1 ", " 60 1 "))
    assert "the workloads have changed since the training was started" in fails(capsys, "train", "--resume", "--out", tmp_path / "run")


def test_a_folder_in_use_is_refused_with_the_process(toy, capsys, tmp_path):
    folder = tmp_path / "run"
    assert run(["train", toy, *SMALL, "--steps", "64", "--out", str(folder)]) == 0
    capsys.readouterr()
    holds = (
        "import sys, pathlib; from gpuyard.learn.run.folder import Folder\n"
        "with Folder(pathlib.Path(sys.argv[1])).locked(): print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", holds, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        assert f"in use by another gpuyard process ({other.pid})" in fails(capsys, "train", "--resume", "--out", folder)
    finally:
        other.kill()
        other.communicate()
    assert run(["train", "--resume", "--out", str(folder), "-f", "json"]) == 0  # the lock goes with its process


@pytest.mark.parametrize("damage", [b"", b"not a state", None])
def test_a_damaged_state_is_told(toy, capsys, tmp_path, damage):
    folder = tmp_path / "run"
    assert run(["train", toy, *SMALL, "--steps", "64", "--out", str(folder)]) == 0
    capsys.readouterr()
    whole = (folder / STATE).read_bytes()
    (folder / STATE).write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert str(folder / STATE) in fails(capsys, "train", "--resume", "--out", folder)
    (folder / CONFIG).write_text("{")
    assert str(folder / CONFIG) in fails(capsys, "train", "--resume", "--out", folder)


def test_no_room_for_a_file_is_one_line_and_leaves_what_was_there(toy_program, tmp_path):
    """The largest file that the process may write is smaller than a state."""
    limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); sys.argv = sys.argv[1:];"
    limit += "runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", limit, str(toy_program), "train", "toy", *SMALL, "--steps", "640", "--out", str(tmp_path / "run")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert "cannot be written: File too large" in last
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.endswith((".tmp", ".part"))]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable to root")
def test_a_folder_that_cannot_be_written(toy, capsys, tmp_path):
    tmp_path.chmod(0o500)
    assert "cannot be written" in fails(capsys, "train", toy, *SMALL, "--out", tmp_path / "run")


def test_an_unusable_place(toy, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written: Not a directory" in fails(capsys, "train", toy, *SMALL, "--out", tmp_path / "file" / "run")


def test_jax_missing_is_one_line(toy_program, tmp_path):
    block = "import sys, runpy; sys.modules['jax'] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", block, str(toy_program), "train", "Toy", "--learner", "ppo", *SMALL]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr == "gpuyard: error: learners need jax, which is not installed\ngpuyard: hint: pip install 'gpuyard[learn]'\n"


def test_a_second_ctrl_c_stops_at_once_and_what_was_saved_stays(unbroken, tmp_path):
    folder = tmp_path / "run"

    def twice(trainer):
        if trainer.progress.update == 6:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    plan = plan_of(request("Toy"))
    with pytest.raises(KeyboardInterrupt):
        train(plan, folder, resume=False, say=lambda _: None, watch=twice)
    assert json.loads(read_arrays(folder / STATE)[1]["progress"])["update"] == 4
    trained(plan, folder, resume=True)
    assert_same(unbroken[0], folder)


def test_what_is_shown_while_it_runs(toy, tmp_path):
    seen = []
    train(
        plan_of(request(toy)), tmp_path / "run", resume=False, say=lambda _: None, watch=lambda trainer: seen.append(dict(facts(trainer)))
    )
    assert seen[-1]["steps"] == f"{STEPS} of {STEPS}"
    assert "% to fcfs" in seen[-1]["wait"]
    assert "% to sjf" in seen[-1]["wait"]
    shares = [int(part.split()[1]) for part in seen[-1]["time"].replace(" %", "%,").replace("%", " ").split(",") if part.strip()]
    assert 97 <= sum(shares) <= 103
    assert seen[-1]["left"] == "0s"


def test_a_terminal_gets_a_panel_on_stderr_and_data_on_stdout(toy_program, tmp_path):
    master, slave = os.openpty()
    command = [sys.executable, str(toy_program), "train", "toy", *SMALL, "--steps", "640", "--out", str(tmp_path / "run"), "-f", "json"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is gone when the process is
        while piece := os.read(master, 65536):
            shown += piece
    os.close(master)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert json.loads(out)["updates"] == 10
    for fact in (b"steps/s", b"return", b"% to sjf", b"validate", b"left"):
        assert fact in shown


def test_the_command_in_a_checkpoint_makes_the_same_checkpoint(toy, capsys, tmp_path):
    words = ["train", toy, *SMALL, "--steps", "128", "--objective", "bsld", "--seed", "3"]
    assert run([*words, "--out", str(tmp_path / "a")]) == 0
    command = shlex.split(read_checkpoint(tmp_path / "a" / LAST).manifest.command)
    assert run([*command[1:], "--out", str(tmp_path / "b")]) == 0
    assert_same(tmp_path / "a", tmp_path / "b")
    capsys.readouterr()
