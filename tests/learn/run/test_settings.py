"""Settings: defaults, a file, texts; the later wins, and what is wrong is named."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.files import merge_tables
from gpuyard.learn.base import learners
from gpuyard.learn.run.plan import TrainingRequest, plan_of
from gpuyard.learn.run.settings import RENAMED, assign, build, names_of, read_file
from gpuyard.traces.parameters import Seconds


@dataclass(frozen=True)
class Inner:
    depth: int = 1


@dataclass(frozen=True)
class One:
    count: int = 1
    share: float = 0.5
    on: bool = False
    name: str = "a"
    kind: Literal["x", "yy"] = "x"
    layers: tuple[int, ...] = (1, 2)
    words: tuple[str, ...] = ()
    limit: float | None = None
    period: Seconds = 60.0
    inner: Inner = Inner()

    def __post_init__(self):
        if self.count > 100:
            raise ValueError("count is above 100")


@dataclass(frozen=True)
class Two:
    count: int = 5
    speed: float = 1.0


KINDS = {"one": One, "two": Two}


def one(*texts):
    return build("one", One, assign(KINDS, texts)["one"])


GOOD = {
    "one.count=-3": One(count=-3),
    "share=1e-3": One(share=0.001),
    "on=yes": One(on=True),
    "name=b=c": One(name="b=c"),
    "kind=yy": One(kind="yy"),
    "layers=64,32": One(layers=(64, 32)),
    "layers=64x32": One(layers=(64, 32)),
    "layers=": One(layers=()),
    "words=next_end,max": One(words=("next_end", "max")),
    "limit=3": One(limit=3.0),
    "limit=none": One(),
    "period=2h": One(period=7200.0),
    "inner.depth=4": One(inner=Inner(4)),
}


@pytest.mark.parametrize("text", list(GOOD))
def test_texts(text):
    assert one(text) == GOOD[text]


BAD = {
    "count=3": "several tables have this setting; hint: one.count or two.count",
    "cout=3": "unknown setting 'cout'; hint: did you mean 'count'?",
    "one.cout=3": "unknown one setting 'cout'; hint: did you mean 'count'?",
    "one.count=x": "one.count = 'x' is not a whole number",
    "one.count=2k": "one: count is above 100",
    "share=nan": "one.share = 'nan' is not a finite number",
    "on=maybe": "one.on = 'maybe' is not true or false",
    "kind=y": "did you mean 'yy'",
    "layers=1,a": "one.layers = 'a' is not a whole number",
    "inner=3": "one.inner = '3' is not a table",
    "inner.dept=3": "did you mean 'depth'",
    "period=soon": "'soon' is not a time",
    "share": "is not NAME=VALUE",
    "one.count=_": "one.count = '_' is not a whole number",
    f"one.count={'9' * 5000}": "is not a whole number",
    "name.first=b": "one.name = \"{'first': 'b'}\" is not a text",
    f"inner{'.depth' * 5000}=1": "inner has no settings of its own",
}


@pytest.mark.parametrize("text", list(BAD))
def test_bad_texts(text):
    with pytest.raises(GpuyardError) as caught:
        one(text)
    assert BAD[text] in str(caught.value)


def test_a_setting_is_no_table_and_a_number_at_once():
    with pytest.raises(GpuyardError, match="name has no settings of its own"):
        assign(KINDS, ["name=a", "name.first=b"])


def test_the_later_layer_wins(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("[one]\ncount = 7\nshare = 0.25\nlayers = [8, 4]\n[one.inner]\ndepth = 9\n[two]\nspeed = 2\n")
    tables = read_file(file, list(KINDS))
    assert build("two", Two, tables["two"]) == Two(speed=2.0)
    texts = assign(KINDS, ["one.count=8"])["one"]
    assert build("one", One, merge_tables(tables["one"], texts)) == One(count=8, share=0.25, layers=(8, 4), inner=Inner(9))


FILES = {
    "[oen]\n": "did you mean 'one'",
    "one = 3\n": "one is not a table; hint: write [one]",
    "[one\n": "not TOML",
    "[one]\ncount = 1.5\n": "one.count = '1.5' is not a whole number",
    "[one]\ncount = true\n": "one.count = 'True' is not a whole number",
    "[one]\nname = 3\n": "one.name = '3' is not a text",
    "[one]\nlayers = 3\n": "one.layers = '3' is not a list",
    f"[one]\ncount = {'9' * 5000}\n": "not TOML",
    f"[one]\nshare = {'9' * 400}\n": "is not a finite number",
    f"[one]\ncount{'.a' * 5000} = 1\n": "nested more than 8 levels deep",
    f"[one]\ncount = {'[' * 200}{']' * 200}\n": "nested more than 8 levels deep",
}


@pytest.mark.parametrize("text", list(FILES))
def test_bad_files(tmp_path, text):
    file = tmp_path / "settings.toml"
    file.write_text(text)
    with pytest.raises(GpuyardError) as caught:
        build("one", One, read_file(file, list(KINDS))["one"])
    assert FILES[text] in str(caught.value)


EARLIER = {
    "ppo": {"gamma": 0.9, "max_gradient": 0.3, "rate": "cosine"},
    "dqn": {"gradient_clip": 3.0, "rate": "linear", "batch": 32, "normalise": False, "epsilon_first": 0.8, "epsilon_last": 0.1},
    "sac": {"gradient_clip": 3.0, "rate": "linear", "batch": 32, "normalise": False},
    "linucb": {"round_steps": 7},
}


@pytest.mark.parametrize("learner", EARLIER)
def test_earlier_names_of_settings_still_work(learner, tmp_path):
    """In a table, as of an old config.json, in a TOML file and as --set."""
    kind, old = learners()[learner].config, EARLIER[learner]
    expected = kind(**{RENAMED[name]: value for name, value in old.items()})
    assert build("learner", kind, old) == expected != kind()
    path = tmp_path / "old.toml"
    path.write_text(
        "[learner]\n" + "\n".join(f"{name} = {str(value).lower() if value is False else repr(value)}" for name, value in old.items())
    )
    request = TrainingRequest("Switch", learner, ("family:gpus=4 on 4",))
    texts = tuple(f"learner.{name}={value}" for name, value in old.items())
    plans = [plan_of(replace(request, file=path)), plan_of(replace(request, sets=texts))]
    for plan in plans:
        assert {name: getattr(plan.config, name) for name in map(RENAMED.get, old)} == {RENAMED[name]: value for name, value in old.items()}


def test_the_later_layer_wins_by_either_name(tmp_path):
    path = tmp_path / "old.toml"
    path.write_text("[learner]\nmax_gradient = 0.3")
    request = TrainingRequest("Switch", "ppo", ("family:gpus=4 on 4",), file=path, sets=("max_grad_norm=0.7",))
    assert plan_of(request).config.max_grad_norm == 0.7


def test_one_setting_by_two_names_is_refused():
    kind = learners()["ppo"].config
    with pytest.raises(GpuyardError, match="learner.discount is given twice; hint: once by an earlier name; leave out 'gamma'"):
        build("learner", kind, {"discount": 0.9, "gamma": 0.8})
    with pytest.raises(GpuyardError, match="'learner.gamma' is given twice"):
        assign({"learner": kind}, ("discount=0.9", "learner.gamma=0.8"))


def test_an_earlier_name_that_is_still_a_setting_elsewhere_means_that():
    kind = learners()["exp3"].config
    assert "gamma" in names_of(kind)
    assert build("learner", kind, {"gamma": 0.2}).gamma == 0.2


def test_no_setting_has_two_names():
    every = {name for _, each in learners().items() for name in names_of(each.config)}
    assert set(RENAMED.values()) <= every
    assert set(RENAMED) & every == {"gamma"}  # of EXP3, a share of random choices
