"""Networks from elsewhere: whatever holds the arrays, the checkpoint says what the network said; what cannot be exported is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from gpuyard import parse_scheduler, simulate
from gpuyard.arrays import Array
from gpuyard.cli.main import run
from gpuyard.envs.registration import register_all
from gpuyard.errors import DataError, GpuyardError, UsageError
from gpuyard.experiments.studies.evaluation import Held, contender, held_out
from gpuyard.features.jobs import JOB
from gpuyard.features.system import SWITCH
from gpuyard.networks.checkpoint import read_checkpoint
from gpuyard.networks.export import Purpose, export_network, linear_layers
from gpuyard.networks.network import Network

ROWS, CONTEXT, SEEN = len(JOB.rows), len(JOB.context), len(SWITCH.context)
PURPOSE = Purpose(JOB, {"placement": "fewest", "backfill": "none"}, "wait")
SCHEDULERS = ("fcfs", "sjf/best/skip", "largest/fewest/easy")
CHOOSES = Purpose(SWITCH, {"schedulers": list(SCHEDULERS), "period": 0.0})


def state_dict(sizes: tuple[int, ...], seed: int = 0, prefix: str = "") -> dict[str, Array]:
    """Return what `torch.nn.Sequential(Linear, Tanh, …, Linear).state_dict()` has in it."""
    random = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        found[f"{prefix}{2 * i}.weight"] = (random.normal(size=(outputs, inputs)) / np.sqrt(inputs)).astype(np.float32)
        found[f"{prefix}{2 * i}.bias"] = random.normal(size=outputs).astype(np.float32)
    return found


def chain(weights: dict[str, Array], x: Array, act=np.tanh) -> Array:
    """Evaluate such a network in numpy."""
    layers = [(weights[name], weights[name.replace("weight", "bias")]) for name in weights if name.endswith("weight")]
    for weight, bias in layers[:-1]:
        x = act(x @ weight.T + bias)
    return x @ layers[-1][0].T + layers[-1][1]


def per_job(weights: dict[str, Array], seen: dict[str, Array]) -> Array:
    """Return (rows,) scores of one observation."""
    together = np.concatenate([seen["rows"], np.tile(seen["context"], (len(seen["rows"]), 1))], axis=1)
    return chain(weights, together)[:, 0]


def observations(count: int = 5, rows: int = 7) -> dict[str, Array]:
    random = np.random.default_rng(1)
    return {
        "rows": random.normal(size=(count, rows, ROWS)).astype(np.float32),
        "context": random.normal(size=(count, CONTEXT)).astype(np.float32),
        "mask": np.ones((count, rows), np.int8),
    }


def one(seen: dict[str, Array], i: int) -> dict[str, Array]:
    return {name: part[i] for name, part in seen.items()}


# ── the same choices ──


@pytest.fixture(scope="module", autouse=True)
def ids() -> None:
    register_all()


def test_a_network_per_job_starts_the_same_jobs_in_the_engine(tmp_path: Path):
    """As it plays the environment by its own arithmetic: every job starts at the same instant."""
    env: Any = gym.make("gpuyard/PickJob-v0", workload="demo:jobs=150,days=0.4,load=1 on 16x8:a100", window=150).unwrapped
    weights = state_dict((ROWS + CONTEXT, 16, 16, 1))
    export_network(tmp_path / "mine.safetensors", weights, env.purpose, act="tanh")
    now, info = env.reset(seed=3)
    over = False
    while not over:
        now, _, over, _, info = env.step(int(np.where(now["mask"], per_job(weights, now), -np.inf).argmax()))
    episode = env.source.episode(info["episode_facts"]["number"])
    result = simulate(episode.workload, episode.cluster, parse_scheduler(str(tmp_path / "mine.safetensors")))
    assert np.array_equal(env.envs.result(0).table["start"], result.table["start"])
    assert not np.array_equal(simulate(episode.workload, episode.cluster, parse_scheduler("fcfs")).table["start"], result.table["start"])


def test_a_switch_as_stable_baselines3_has_it_chooses_the_same_schedulers(tmp_path: Path):
    """Names, order of inputs and mask are those of its MultiInputPolicy; the value function stays behind."""
    settings: dict[str, Any] = {"workload": "demo:jobs=150,days=0.4,load=1 on 16x8:a100", "schedulers": SCHEDULERS, "every": 0.0}
    env: Any = gym.make("gpuyard/Switch-v0", **settings)
    inputs = tuple(env.observation_space)
    policy = state_dict((SEEN + 3, 16, 16), 1, "mlp_extractor.policy_net.")
    last = {"action_net.weight": state_dict((16, 3), 2)["0.weight"] * 9, "action_net.bias": np.array([-8, -5, -3], np.float32)}
    value = state_dict((SEEN + 3, 16, 16), 3, "mlp_extractor.value_net.") | {"value_net.weight": np.zeros((1, 16), np.float32)}
    layers = ("mlp_extractor.policy_net", "action_net")
    export_network(
        tmp_path / "mine.safetensors", policy | value | last, env.unwrapped.purpose, act="tanh", layers=layers, inputs=inputs
    )  # fmt: skip
    now, info = env.reset(seed=3)
    over, chosen = False, set()
    while not over:
        action = int(chain(policy | last, np.concatenate([now[name] for name in inputs])).argmax())
        chosen.add(action)
        now, _, over, _, info = env.step(action)
    episode = env.unwrapped.source.episode(info["episode_facts"]["number"])
    result = simulate(episode.workload, episode.cluster, parse_scheduler(str(tmp_path / "mine.safetensors")))
    assert len(chosen) > 1
    assert np.array_equal(env.unwrapped.envs.result(0).table["start"], result.table["start"])


def test_its_file_is_a_scheduler_for_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    env: Any = gym.make("gpuyard/PickJob-v0", workload="demo:jobs=60,days=0.2 on 16x8:a100", backfill="easy").unwrapped
    export_network("mine.safetensors", state_dict((ROWS + CONTEXT, 8, 1)), env.purpose, act="relu")
    assert run(["compare", "demo:jobs=60,days=0.2", "--scheduler", "./mine.safetensors", "--scheduler", "fcfs", "--seeds", "2"]) == 0
    assert "mine.safetensors" in capsys.readouterr().out
    assert run(["evaluate", "mine.safetensors", "--batches", "2"]) == 0
    assert run(["show", "mine.safetensors"]) == 0
    assert "demo:jobs=60" in capsys.readouterr().out
    found = contender("mine.safetensors")
    assert found.scheduler.label == "mine.safetensors/fewest/easy"
    with pytest.raises(UsageError, match="cannot be evaluated on"):
        held_out([found], Held(("demo:jobs=60,days=0.2 on 16x8:a100",), seeds=(1_000_000,)))


def test_neither_torch_nor_jax_is_needed(tmp_path: Path):
    """The file is written and used in a process in which neither can be imported."""
    import subprocess

    program = f"""
import sys
for name in ("torch", "jax", "gymnasium"): sys.modules[name] = None
import numpy as np
from gpuyard import parse_scheduler, simulate
from gpuyard.features.jobs import JOB
from gpuyard.networks.export import Purpose, export_network
export_network({str(tmp_path / "mine.safetensors")!r}, [(np.ones((1, 17)), np.zeros(1))], Purpose(JOB), act="tanh")
result = simulate("demo:jobs=50,days=0.1", "16x8:a100", {str(tmp_path / "mine.safetensors")!r})
print((result.table["end"] > 0).all())
"""
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["True"]


# ── what may hold the weights ──


def pytree(weights: dict[str, Array]) -> dict[str, Any]:
    """Return what Flax has: kernels (in, out), nested."""
    names = [name.removesuffix(".weight") for name in weights if name.endswith("weight")]
    made = {f"Dense_{i}": {"kernel": weights[f"{name}.weight"].T, "bias": weights[f"{name}.bias"]} for i, name in enumerate(names)}
    return {"params": made}


def pairs(weights: dict[str, Array]) -> list[tuple[Array, Array]]:
    return [(weights[name], weights[name.replace("weight", "bias")]) for name in weights if name.endswith("weight")]


class Tensor:
    """What is asked of a tensor of PyTorch that needs a gradient and lies on a GPU."""

    def __init__(self, values: Array) -> None:
        self._values = values

    def detach(self) -> Tensor:
        return self

    cpu = float = detach

    def __array__(self, *_: Any, **__: Any) -> Array:
        return self._values


HOLDERS = {
    "state dict": lambda weights: weights,
    "pytree": pytree,
    "pairs": pairs,
    "tensors": lambda weights: {name: Tensor(each) for name, each in weights.items()},
    "float64": lambda weights: {name: each.astype(np.float64) for name, each in weights.items()},
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("act", ["tanh", "relu"])
def test_the_checkpoint_says_what_the_network_said(holder: str, act: str, tmp_path: Path):
    weights, seen = state_dict((ROWS + CONTEXT, 6, 6, 1)), observations()
    said = np.array([chain_of(weights, one(seen, i), act) for i in range(5)])
    export_network(tmp_path / "mine.safetensors", HOLDERS[holder](weights), PURPOSE, act=act, seen=seen, scores=said)  # type: ignore[arg-type]
    found = read_checkpoint(tmp_path / "mine.safetensors")
    scores = Network.of(found.manifest.network, found.arrays).scores(seen["rows"][0], seen["context"][0])
    assert np.allclose(scores, said[0], atol=1e-5)


def chain_of(weights: dict[str, Array], seen: dict[str, Array], act: str) -> Array:
    together = np.concatenate([seen["rows"], np.tile(seen["context"], (len(seen["rows"]), 1))], axis=1)
    return chain(weights, together, np.tanh if act == "tanh" else lambda x: np.maximum(x, 0))[:, 0]


def test_arrays_of_jax(tmp_path: Path):
    jax = pytest.importorskip("jax")
    weights, seen = state_dict((ROWS + CONTEXT, 6, 1)), observations()
    said = np.array([per_job(weights, one(seen, i)) for i in range(5)])
    export_network(
        tmp_path / "m.safetensors", jax.tree.map(jax.numpy.asarray, pytree(weights)), PURPOSE, act="tanh", seen=seen, scores=said
    )


def test_modules_of_torch(tmp_path: Path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(ROWS + CONTEXT, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    seen = observations()
    both = np.concatenate([seen["rows"], np.repeat(seen["context"][:, None], seen["rows"].shape[1], axis=1)], axis=2)
    said = model(torch.as_tensor(both))[..., 0]  # with its gradient
    export_network(tmp_path / "mine.safetensors", dict(model.named_parameters()), PURPOSE, act="tanh", seen=seen, scores=said)


def test_stacks_by_name_pool_and_normalise(tmp_path: Path):
    """Encoders of rows and context, the mean of all rows, and inputs as running statistics have them."""
    seen = observations()
    stacks = {"row": state_dict((ROWS, 5), 1), "context": state_dict((CONTEXT, 4), 2), "head": state_dict((5 + 4 + 5, 6, 1), 3)}
    mean, std = {"rows": np.linspace(-1, 1, ROWS)}, {"rows": np.linspace(1, 2, ROWS), "context": np.full(CONTEXT, 3.0)}
    said = []
    for i in range(5):
        h = np.tanh(chain(stacks["row"], ((seen["rows"][i] - mean["rows"]) / std["rows"]).astype(np.float32)))
        e = np.tanh(chain(stacks["context"], seen["context"][i] / np.float32(3)))
        shared = np.tile(np.concatenate([e, h.mean(axis=0)]), (len(h), 1))
        said.append(chain(stacks["head"], np.concatenate([h, shared], axis=1))[:, 0])
    export_network(
        tmp_path / "mine.safetensors", stacks, PURPOSE, act="tanh", pool="mean", mean=mean, std=std, seen=seen, scores=np.array(said)
    )  # fmt: skip


def test_the_order_of_the_inputs_is_told(tmp_path: Path):
    """A mask beside a row is 1 wherever a choice is scored."""
    weights, seen = state_dict((CONTEXT + 1 + ROWS, 6, 1)), observations()
    shape = (*seen["rows"].shape[:2], 1)
    both = np.concatenate(
        [np.broadcast_to(seen["context"][:, None], (*shape[:2], CONTEXT)), np.ones(shape, np.float32), seen["rows"]], axis=2
    )
    said = chain(weights, both)[..., 0]
    inputs = ("context", "mask", "rows")
    export_network(tmp_path / "mine.safetensors", weights, PURPOSE, act="tanh", inputs=inputs, seen=seen, scores=said)
    with pytest.raises(DataError, match="differ"):
        export_network(tmp_path / "m.safetensors", weights, PURPOSE, act="tanh", inputs=inputs[::-1], seen=seen, scores=said)


def test_rows_alone(tmp_path: Path):
    weights, seen = state_dict((ROWS, 6, 1)), observations()
    said = chain(weights, seen["rows"])[..., 0]
    export_network(tmp_path / "mine.safetensors", weights, PURPOSE, act="tanh", seen=seen, scores=said)


def test_layers_without_a_bias():
    (layer,) = linear_layers({"out.weight": np.ones((2, 3))})
    assert layer.bias.tolist() == [0, 0]


# ── what is refused ──

GOOD = state_dict((ROWS + CONTEXT, 6, 1))
WRONG: dict[str, tuple[Any, Purpose, dict[str, Any], str]] = {
    "a fixed window": (state_dict((ROWS + CONTEXT, 6, 64)), PURPOSE, {}, "gives 64 numbers, and a job gets one score"),
    "a flat observation": (state_dict((64 * ROWS + CONTEXT, 6, 1)), PURPOSE, {}, r"521 numbers, the inputs have 8 \(rows\) \+ 9"),
    "a wrong order": (dict(reversed(pytree(GOOD)["params"].items())), PURPOSE, {}, "before it gives 1"),
    "a normalisation layer": ({**GOOD, "norm.weight": np.ones(6), "norm.bias": np.ones(6)}, PURPOSE, {}, "a linear layer has two"),
    "another parameter": ({"log_std": np.zeros(3), **GOOD}, PURPOSE, {}, "log_std is not a linear layer"),
    "a transposed pair": ([(np.ones((17, 6)), np.ones(6)), (np.ones((6, 1)), np.ones(1))], PURPOSE, {}, "transpose it"),
    "an unknown layer": (GOOD, PURPOSE, {"layers": ("policy",)}, "policy"),
    "a name for a list": (GOOD, PURPOSE, {"layers": "policy"}, "a list of names"),
    "no layers": ({}, PURPOSE, {}, "no layers"),
    "text": ({"0.weight": "a", "0.bias": "b"}, PURPOSE, {}, "not an array of numbers"),
    "not finite": ({**GOOD, "0.bias": np.full(6, np.nan)}, PURPOSE, {}, "not finite"),
    "an unknown input": (GOOD, PURPOSE, {"inputs": ("row", "context")}, "row"),
    "an input twice": (state_dict((ROWS * 2, 6, 1)), PURPOSE, {"inputs": ("rows", "rows")}, "takes 16 numbers"),
    "too few schedulers": (state_dict((SEEN, 6, 2)), CHOOSES, {}, "2 scores, and there are 3 schedulers"),
    "a mask unsaid": (state_dict((SEEN + 3, 6, 3)), CHOOSES, {}, r"inputs=\('context', 'mask'\)"),
    "an activation": (GOOD, PURPOSE, {"act": "gelu"}, "act is 'gelu'"),
    "a spread of 0": (GOOD, PURPOSE, {"std": {"rows": np.zeros(ROWS)}}, "not above 0"),
    "a mean of another width": (GOOD, PURPOSE, {"mean": {"rows": np.zeros(3)}}, "rows.mean"),
    "a mean of nothing": (GOOD, PURPOSE, {"mean": {"jobs": np.zeros(3)}}, "jobs"),
    "scores alone": (GOOD, PURPOSE, {"scores": np.zeros((1, 1))}, "belong together"),
    "a head without layers": ({"head": {}}, PURPOSE, {}, "no layers"),
    "stacks that do not fit": ({"row": state_dict((ROWS, 4)), "head": state_dict((5, 1))}, PURPOSE, {}, "head.0.weight"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_exported_is_refused_in_one_line(case: str, tmp_path: Path):
    weights, purpose, more, said = WRONG[case]
    with pytest.raises(GpuyardError, match=said):
        export_network(tmp_path / "mine.safetensors", weights, purpose, **{"act": "tanh", **more})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("act", ["relu", "tanh"])
def test_a_wrong_activation_is_found_by_comparing(act: str, tmp_path: Path):
    seen = observations()
    said = np.array([chain_of(GOOD, one(seen, i), "relu" if act == "tanh" else "tanh") for i in range(5)])
    with pytest.raises(DataError, match="differ by"):
        export_network(tmp_path / "mine.safetensors", GOOD, PURPOSE, act=act, seen=seen, scores=said)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_scores_of_another_shape_are_refused(tmp_path: Path):
    seen = observations()
    for scores in (np.zeros(5), np.zeros((4, 7)), np.zeros((5, 6))):
        with pytest.raises(GpuyardError, match="scores"):
            export_network(tmp_path / "mine.safetensors", GOOD, PURPOSE, act="tanh", seen=seen, scores=scores)


def test_programs_among_the_choices_are_not_run(tmp_path: Path):
    purpose = replace(PURPOSE, choices={"placement": "./evil.py:rule"})
    export_network(tmp_path / "mine.safetensors", GOOD, purpose, act="tanh")
    with pytest.raises(GpuyardError, match="not run"):
        parse_scheduler(str(tmp_path / "mine.safetensors"))
