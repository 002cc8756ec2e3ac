"""Networks against the text of gpuyard.networks.spec, written plainly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gpuyard.errors import DataError, UsageError
from gpuyard.features.schema import Schema
from gpuyard.learn.parts import networks
from gpuyard.learn.parts.presets import NETWORKS, network_for
from gpuyard.networks.spec import NetworkSpec

ROWS = Schema("host", 1, tuple("abcdefghij"), tuple("klmnopqr"))
FIXED = Schema("switch", 1, (), tuple("abcdef"))
SPECS = {
    "kernel": NetworkSpec(3, 2, head_layers=(5, 4)),
    "linear": NetworkSpec(3, 2, head_layers=(), value_layers=()),
    "no context": NetworkSpec(3, 0, row_layers=(4,), pool="mean"),
    "mean": NetworkSpec(3, 2, row_layers=(6, 4), context_layers=(5,), pool="mean", act="tanh"),
    "attention": NetworkSpec(3, 2, row_layers=(6,), context_layers=(5,), pool="attention", heads=2),
    "mlp": NetworkSpec(0, 5, 3, context_layers=(4,), head_layers=(4,)),
    "memory": NetworkSpec(0, 5, 3, context_layers=(4,), head_layers=(), history=3, memory_layers=(4, 2), act="tanh"),
    "history as it is": NetworkSpec(0, 5, 3, history=3),
    "atoms": NetworkSpec(0, 5, 3, atoms=7, low=-2.0, high=1.0),
}


# Compiled as one program: without it each operation of each shape is compiled, which takes twice as long.
apply = jax.jit(networks.apply, static_argnums=0)
apply_and_value = jax.jit(networks.apply_and_value, static_argnums=0)
value = jax.jit(networks.value, static_argnums=0)


def busy(spec: NetworkSpec, seed: int = 0) -> networks.Params:
    """Parameters that are nowhere 0 or 1."""
    random = np.random.default_rng(seed)
    return {name: jnp.asarray(random.normal(size=shape), jnp.float32) for name, shape in networks.shapes(spec).items()}


def inputs(spec: NetworkSpec, *leading: int, n: int = 4, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    actions = n if spec.rows else spec.actions
    mask = random.random((*leading, actions)) < 0.5
    mask[..., 1] = True
    rows = random.normal(size=(*leading, n if spec.rows else 0, spec.rows))
    return rows.astype(np.float32), random.normal(size=(*leading, spec.context)).astype(np.float32), mask


def plain(spec: NetworkSpec, params: networks.Params, rows: np.ndarray, context: np.ndarray, mask: np.ndarray) -> tuple[list[float], float]:
    """One situation, row by row, as the text says it."""
    p = {name: np.asarray(each, float) for name, each in params.items()}
    act = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}[spec.act]

    def layers(name: str, x: np.ndarray, last_linear: bool) -> np.ndarray:
        count = sum(key.startswith(f"{name}.") and key.endswith(".weight") for key in p)
        for k in range(count):
            x = p[f"{name}.{k}.weight"] @ x + p[f"{name}.{k}.bias"]
            x = x if last_linear and k == count - 1 else act(x)
        return x

    z = (context - p["context.mean"]) * p["context.scale"]
    if not spec.rows:
        cut = spec.context - spec.history
        e = layers("context", np.concatenate([z[:cut], layers("memory", z[cut:], False)]), False)
        y = layers("head", e, True).reshape(spec.actions, spec.atoms)
        chances = np.exp(y) / np.exp(y).sum(1, keepdims=True)
        scores = chances @ np.linspace(spec.low, spec.high, spec.atoms) if spec.atoms > 1 else y[:, 0]
        return [s if legal else networks.ILLEGAL for s, legal in zip(scores, mask, strict=True)], layers("value_head", e, True)[0]
    e = layers("context", z, False)
    h = [layers("row", (row - p["rows.mean"]) * p["rows.scale"], False) for row in rows]
    chosen = [h[i] for i in range(len(h)) if mask[i]]
    c = {"none": lambda: np.zeros(0), "mean": lambda: np.mean(chosen, 0), "attention": lambda: attention(spec, p, chosen, e)}[spec.pool]()
    scores = [layers("head", np.concatenate([h[i], e, c]), True)[0] if mask[i] else networks.ILLEGAL for i in range(len(h))]
    return scores, layers("value_head", np.concatenate([np.mean(chosen, 0), e]), True)[0]


def attention(spec: NetworkSpec, p: dict[str, np.ndarray], h: list[np.ndarray], e: np.ndarray) -> np.ndarray:
    q, d = p["query.weight"] @ e, len(h[0]) // spec.heads
    found = []
    for head in range(spec.heads):
        part = slice(head * d, (head + 1) * d)
        weights = np.exp([q[part] @ (p["key.weight"] @ each)[part] / np.sqrt(d) for each in h])
        found.append(sum(w * (p["value.weight"] @ each)[part] for w, each in zip(weights / weights.sum(), h, strict=True)))
    return np.concatenate(found)


@pytest.mark.parametrize("name", SPECS)
def test_equals_the_text(name: str) -> None:
    spec = SPECS[name]
    params, (rows, context, mask) = busy(spec), inputs(spec, 5)
    scores, values = apply_and_value(spec, params, rows, context, mask)
    for i in range(5):
        expected, worth = plain(spec, params, rows[i], context[i], mask[i])
        np.testing.assert_allclose(scores[i], expected, rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(values[i], worth, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(apply(spec, params, rows, context, mask), scores, rtol=1e-5)
    np.testing.assert_allclose(value(spec, params, rows, context, mask), values, rtol=1e-5)


@pytest.mark.parametrize("name", SPECS)
def test_any_number_of_leading_axes(name: str) -> None:
    spec = SPECS[name]
    params, (rows, context, mask) = busy(spec), inputs(spec, 2, 3)
    scores, values = apply_and_value(spec, params, rows, context, mask)
    assert scores.shape == mask.shape
    assert values.shape == (2, 3)
    alone, worth = apply_and_value(spec, params, rows[1, 2], context[1, 2], mask[1, 2])
    np.testing.assert_allclose(scores[1, 2], alone, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values[1, 2], worth, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["kernel", "mean", "attention"])
def test_order_of_rows_does_not_matter(name: str) -> None:
    spec = SPECS[name]
    params, (rows, context, mask) = busy(spec), inputs(spec, 3, n=6)
    order = np.array([3, 0, 5, 1, 4, 2])
    scores, values = apply_and_value(spec, params, rows, context, mask)
    moved, same = apply_and_value(spec, params, rows[:, order], context, mask[:, order])
    np.testing.assert_allclose(moved, scores[:, order], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(same, values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["kernel", "mean", "attention"])
def test_rows_that_may_not_be_chosen_change_nothing(name: str) -> None:
    spec = SPECS[name]
    params, (rows, context, mask) = busy(spec), inputs(spec, 3)
    other = np.where(mask[..., None], rows, 100.0 * rows + 7.0)
    more = np.concatenate([other, other], 1)
    scores, values = apply_and_value(spec, params, rows, context, mask)
    same, same_values = apply_and_value(spec, params, more, context, np.concatenate([mask, np.zeros_like(mask)], 1))
    np.testing.assert_allclose(same[:, :4], scores, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(same_values, values, rtol=1e-4, atol=1e-5)


def test_initial_weights_are_orthogonal_and_choices_nearly_equal() -> None:
    spec = NetworkSpec(3, 2, row_layers=(6,), head_layers=(5, 4))
    params = networks.init(spec, jax.random.key(3))
    assert {name: each.shape for name, each in params.items()} == networks.shapes(spec)
    assert {each.dtype for each in params.values()} == {jnp.dtype("float32")}
    np.testing.assert_allclose(params["row.0.weight"].T @ params["row.0.weight"], 2 * np.eye(3), atol=1e-5)
    assert float(jnp.abs(params["head.2.weight"]).max()) <= 0.01
    assert all(
        (np.asarray(params[f"{part}.mean"]) == 0).all() and (np.asarray(params[f"{part}.scale"]) == 1).all() for part in ("rows", "context")
    )
    again, other = networks.init(spec, jax.random.key(3)), networks.init(spec, jax.random.key(4))
    assert all((params[name] == again[name]).all() for name in params)
    assert not (params["head.0.weight"] == other["head.0.weight"]).all()


def test_normalisation_is_not_trained() -> None:
    params = networks.init(SPECS["kernel"], jax.random.key(0))
    assert not set(networks.trained(params)) & set(networks.NORMALISATION)
    assert {**networks.trained(params), **networks.normalisation(params)}.keys() == params.keys()


def test_probabilities_of_legal_choices() -> None:
    scores = jnp.asarray([[0.0, networks.ILLEGAL, np.log(3.0)]], jnp.float32)
    chances = jnp.exp(networks.log_probabilities(scores))
    np.testing.assert_allclose(chances, [[0.25, 0.0, 0.75]], atol=1e-6)
    expected = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    np.testing.assert_allclose(networks.entropy(networks.log_probabilities(scores)), [expected], rtol=1e-5)
    drawn = np.asarray(networks.sample(jnp.tile(scores, (20_000, 1)), jax.random.key(1)))
    assert set(drawn.tolist()) == {0, 2}
    assert abs((drawn == 2).mean() - 0.75) < 0.015  # five standard deviations


def test_entropy_has_finite_gradients_where_choices_are_masked() -> None:
    scores = jnp.asarray([0.3, networks.ILLEGAL, networks.ILLEGAL], jnp.float32)
    assert np.isfinite(jax.grad(lambda s: networks.entropy(networks.log_probabilities(s)))(scores)).all()


def test_host_preset_has_about_2500_parameters() -> None:
    assert 2300 <= networks.parameter_count(network_for(ROWS, 50, "host")) <= 2700


@pytest.mark.parametrize("kind", list(NETWORKS))
def test_every_preset_can_be_made_and_evaluated(kind: str) -> None:
    of_rows, _ = NETWORKS[kind]
    spec = network_for(ROWS if of_rows else FIXED, 4, kind, width=8, history=0 if of_rows else 3)
    rows, context, mask = inputs(spec, 2)
    scores = apply(spec, networks.init(spec, jax.random.key(0)), rows, context, mask)
    assert ((np.asarray(scores) > networks.ILLEGAL / 2) == mask).all()


def test_presets_by_default() -> None:
    assert network_for(ROWS, 50) == network_for(ROWS, 50, "kernel")
    assert network_for(FIXED, 3) == network_for(FIXED, 3, "mlp")
    assert network_for(FIXED, 3, history=2).history == 2


@pytest.mark.parametrize(
    ("schema", "kind", "words"),
    [(ROWS, "mlp", "has rows"), (FIXED, "kernel", "has no rows"), (FIXED, "memory", "history"), (ROWS, "kernal", "did you mean 'kernel'")],
)
def test_presets_that_do_not_fit_are_refused(schema: Schema, kind: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        network_for(schema, 3, kind)


def test_width_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(DataError, match="2 heads do not divide a width of 5"):
        networks.shapes(NetworkSpec(3, 2, row_layers=(5,), pool="attention", heads=2))
