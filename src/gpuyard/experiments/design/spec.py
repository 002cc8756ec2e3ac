"""An experiment as data: a TOML file of axes, whose product are the Runs.

    title = "…"                     # one line
    question = "…"                  # what it is to answer
    kind = "simulations"            # how a Run is made (`KINDS` in kinds.py)

    [axes]
    workloads = ["family:shape=base|bursty,gpus=2|4 on {gpus}"]   # as `gpuyard train` takes them; `|`: values of a parameter
    clusters = ["8"]                # for workloads that name none
    changes = ["", "burst:severity=3"]     # transforms; "": none
    estimates = ["exact"]           # "": as the workload has them
    schedulers = ["fcfs", "meta"]   # texts, names of [names], or agents
    seeds = "0-7"                   # of generators; of a log: windows that do not overlap, spread over it
    objectives = ["slowdown"]       # metrics that schedulers are judged by

    [names]                         # short names for schedulers and workloads
    meta = "learned:meta"

    [vary]                          # values for holes `{load}` in workloads of [names]: the first of each is the centre, from which one
    load = ["1.0", "0.7"]           # at a time is varied; [[also]]: further places, by what differs from the centre
    [own.KTH]                       # values of one workload; holes in schedulers take these, its parameters, and those of [vary]

    [judge]                         # baseline, challengers, oracle, further metrics, parameters to group by
    [rules]                         # checkpoint, restart_cost, walltime_kill, checkpoint_cost, drain
    [settings]                      # of another kind than simulations: numbers, and ranges such as "0.7:1"
    [keep]                          # curves of each Run; [[examples]]: whole results of a few
    [[sets]]                        # schedulers, and switches that choose among them: which are compared by the figure switch_gain
    [agents.NAME]                   # policies that are trained first
    [quick]                         # what is different in a short form of it

A file from outside can be wrong or hostile: everything is typed and bounded, nothing in it is run but what the user could name on the
command line, and a scheduler that is a program (`FILE.py:NAME`) must be named by the user's own file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuyard.errors import DataError, GpuyardError, UsageError
from gpuyard.experiments.design.varying import check_varied, varied_of, without_unset
from gpuyard.files import MAX_TOML_BYTES, merge_tables, parse_toml, read_bytes, user_path
from gpuyard.model.fields import Fields
from gpuyard.model.units import shorten
from gpuyard.registry import american, unknown_name

SPECS = Path(__file__).parents[1] / "specs"
SUFFIX = ".toml"
AXES = ("workloads", "clusters", "changes", "estimates", "schedulers", "seeds", "objectives")
# Usual names of what every Run is measured by → metrics; times in s, energy in kWh
USUAL: Mapping[str, str] = {
    "avg_jct": "turnaround", "p95_jct": "turnaround.p95", "p99_jct": "turnaround.p99", "slowdown": "slowdown", "makespan": "makespan",
    "queue_len_mean": "queue_mean", "queue_len_max": "queue_max", "fairness_jain": "fairness", "utilization": "utilization",
    "energy": "energy", "sla": "deadline_met",
}  # fmt: skip
QUICK = "quick form: fewer and other Runs, to see that it works"
MOST_RUNS = 10_000_000
MOST_SEEDS = 100_000
MAX_SEED = 2**63 - 1
LONG = 10_000  # characters of a workload or scheduler
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")
_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")  # part of the names of files and of a policy
_OWN_NAME = re.compile(r"[^\W_][\w.+-]{0,99}")  # of an experiment: that of a folder
_RANGE = re.compile(r"(?P<first>[0-9]{1,19})(?:[-–](?P<last>[0-9]{1,19}))?")


@dataclass(frozen=True)
class Axes:
    """The axes, as the texts of the file."""

    workloads: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ("",)
    changes: tuple[str, ...] = ("",)
    estimates: tuple[str, ...] = ("",)
    schedulers: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    objectives: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judging:
    """How schedulers are compared. Names are those of the axis `schedulers`."""

    baseline: str = ""  # empty: the best of the rivals on each objective
    challengers: tuple[str, ...] = ()
    oracle: tuple[str, ...] = ()  # the best of these in each run, in hindsight; empty: no oracle
    metrics: tuple[str, ...] = ()  # besides the objectives
    groups: tuple[str, ...] = ()  # parameters of the workloads, by whose values there are tables too
    rivals: tuple[str, ...] = ()  # the baseline is one of these; empty: all that are not challengers

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", tuple(map(american, self.metrics)))


@dataclass(frozen=True)
class RulesText:
    """Rules of the simulation; times are in seconds."""

    checkpoint: float = 0.0
    restart_cost: float = 0.0
    walltime_kill: bool = False
    checkpoint_cost: float = 0.0
    drain: float = 0.0


@dataclass(frozen=True)
class Example:
    """A simulation that is kept whole, for pictures of single jobs and choices."""

    workload: str
    schedulers: tuple[str, ...]
    seed: int = 0


@dataclass(frozen=True)
class SwitchSet:
    """Schedulers that can be used alone, and the switches that are compared with the best of them."""

    name: str
    fixed: tuple[str, ...]
    switches: tuple[str, ...]
    workloads: tuple[str, ...] = ()  # of the axis, on which they are compared; empty: on all


@dataclass(frozen=True)
class AgentSpec:
    """A policy that is trained before the Runs, once for each training seed; the settings are those of `gpuyard train`."""

    env: str
    learner: str
    workloads: tuple[str, ...]
    steps: str
    cluster: str = ""
    seeds: tuple[int, ...] = (0,)
    settings: tuple[str, ...] = ()
    start: str = ""
    objective: str = ""


@dataclass(frozen=True)
class Experiment:
    """Everything that decides the numbers. The machine and the number of workers are not part of it."""

    name: str
    title: str
    question: str
    kind: str
    axes: Axes
    names: Mapping[str, str] = field(default_factory=dict)
    judge: Judging = field(default_factory=Judging)
    rules: RulesText = field(default_factory=RulesText)
    curves: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    sets: tuple[SwitchSet, ...] = ()
    vary: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    also: tuple[Mapping[str, str], ...] = ()
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    agents: Mapping[str, AgentSpec] = field(default_factory=dict)
    settings: Mapping[str, float | str] = field(default_factory=dict)  # of the kind; a range is a text, `0.7:1`

    @property
    def metrics(self) -> tuple[str, ...]:
        """The objectives, then the others."""
        return tuple(dict.fromkeys((*self.axes.objectives, *self.judge.metrics)))

    @property
    def measured(self) -> tuple[str, ...]:
        """The metrics that judge, then the rest of the usual ones: tables of different studies have the same columns."""
        return tuple(dict.fromkeys((*self.metrics, *USUAL.values())))

    def text_of(self, name: str) -> str:
        """Return a scheduler or a workload of the axes in full; an agent is its name."""
        return self.names.get(name, name)

    @property
    def centre(self) -> dict[str, str]:
        """Return the first value of everything that [vary] varies."""
        return {name: values[0] for name, values in self.vary.items()}

    @property
    def places(self) -> list[dict[str, str]]:
        """List the values for holes: the centre, one varied at a time, and those of [[also]]; without [vary] one place without values."""
        single = [{name: value} for name, values in self.vary.items() for value in values[1:]]
        return [{**self.centre, **each} for each in ({}, *single, *self.also)]

    def record(self) -> dict[str, Any]:
        """Return the experiment as JSON values."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @property
    def digest(self) -> str:
        """Two experiments with the same one give the same numbers."""
        return hashlib.sha256(json.dumps(self.record(), sort_keys=True).encode()).hexdigest()[:16]


# ── from a file ──


def shipped() -> dict[str, Path]:
    """List the experiments that come with the package, by name."""
    return {path.stem: path for path in sorted(SPECS.glob(f"*{SUFFIX}"))}


def load_experiment(text: str, *, quick: bool = False, values: Mapping[str, str] | None = None) -> Experiment:
    """Load the experiment that a text names: one that comes with the package, or a TOML file.

    `values` fill holes such as `${traces}`, where they are not what the file's table [values] says.
    """
    known = shipped()
    path = known.get(text) or user_path(text)
    if text not in known and (not text.endswith(SUFFIX) or not path.is_file()):
        if text.endswith(SUFFIX) or "/" in text:
            raise DataError(f"{text}: no such file", hint="NAME of `gpuyard list experiments`, or FILE.toml")
        raise unknown_name("experiment", text, list(known))
    where = f"{text}{SUFFIX}" if text in known else str(path)
    return parse_experiment(read_bytes(path, MAX_TOML_BYTES, "an experiment"), where, quick=quick, values=values)


@contextmanager
def placed(where: str) -> Iterator[None]:
    """Put the place before the message of an error that is raised in here."""
    try:
        yield
    except GpuyardError as error:
        made = type(error)(f"{where}: {error}")
        made.hint = error.hint
        raise made from None


def parse_experiment(text: bytes | str, where: str, *, quick: bool = False, values: Mapping[str, str] | None = None) -> Experiment:
    """Parse the text of a TOML file; `where` names the file in errors, and gives the experiment its name."""
    table = parse_toml(text, where)
    short = table.pop("quick", {})
    if not isinstance(short, dict):
        raise DataError(f"{where}: quick is not a table", hint="write [quick.axes]")
    if quick and not short:
        raise UsageError(f"{where}: has no quick form", hint="add a table [quick.axes] with shorter axes")
    whole = _made(table, values or {}, where)
    if not short:
        return whole
    brief = _made(merge_tables(table, short), values or {}, f"{where}: [quick]")  # also where it is not asked for: a slip in it is found
    return replace(brief, name=whole.name, title=f"{whole.title} ({QUICK})") if quick else whole


def _made(table: Mapping[str, Any], values: Mapping[str, str], where: str) -> Experiment:
    rest = {key: value for key, value in table.items() if key != "values"}
    known = _known_values(table.get("values", {}), values, where)
    return from_table(_filled(without_unset(rest, known), known, where), where)


def _known_values(holes: Any, given: Mapping[str, str], where: str) -> dict[str, str]:
    if not isinstance(holes, dict) or not all(isinstance(value, str) for value in holes.values()):
        raise DataError(f"{where}: [values] must be a table of texts")
    for name in given:
        if name not in holes:
            raise unknown_name(f"value of {where}", name, list(holes))
    return {**holes, **given}


def _filled(value: Any, holes: Mapping[str, str], where: str) -> Any:
    """Replace `${name}` in all texts."""
    if isinstance(value, dict):
        return {key: _filled(each, holes, where) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, holes, where) for each in value]
    if not isinstance(value, str) or "${" not in value:
        return value

    def fill(hole: re.Match[str]) -> str:
        if hole[1] not in holes:
            raise unknown_name(f"value in {where}", hole[1], list(holes))
        return holes[hole[1]]

    return re.sub(r"\$\{(\w+)\}", fill, value)


def from_table(table: Mapping[str, Any], where: str) -> Experiment:
    """Make an experiment from TOML or JSON that was read; refuse unknown keys."""
    root = Fields(table, where)
    agents = {name: _agent(name, fields, where) for name, fields in root.tables("agents")}
    names = _names(root.table("names"), where)
    axes = _axes(root.table("axes"), where)
    made = Experiment(
        name=_name(root, where),
        title=root.text("title"),
        question=root.text("question", ""),
        kind=root.text("kind", "simulations"),
        axes=axes,
        names=names,
        judge=_judge(root.table("judge")),
        rules=_rules(root.table("rules")),
        curves=_texts(root, "curves", ()),
        figures=_texts(root, "figures", ()),
        examples=tuple(_example(fields) for fields in root.rows("examples")),
        sets=tuple(_set(fields) for fields in root.rows("sets")),
        **varied_of(root),
        agents=agents,
        settings=_settings(root.table("settings")),
    )
    root.done()
    _check(made, where)
    return made


def _name(root: Fields, where: str) -> str:
    """Return the name of the file unless a name is given; it becomes the name of a folder."""
    name = root.text("name", re.sub(r"[^\w.+-]", "_", Path(where).name.removesuffix(SUFFIX)).lstrip("_.+-")[:100] or "experiment")
    if not _OWN_NAME.fullmatch(name):
        raise root.error("name", "is not a valid name of an experiment", hint="letters, digits, . _ + and -, up to 100")
    return name


def _texts(fields: Fields, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """A list of strings, each as `Fields.text` has them."""
    found = fields.texts(key) if default is None else fields.texts(key, default)
    for text in found:
        if len(text) > LONG:
            raise fields.error(key, f"has a text that is longer than {LONG:,} characters")
        if any(ord(letter) < 32 or 0xD800 <= ord(letter) < 0xE000 for letter in text):
            raise fields.error(key, f"has a control character: {shorten(text)}")
    return found


def _axes(fields: Fields, where: str) -> Axes:
    for key in fields.names:
        if key not in AXES:
            raise unknown_name(f"axis in {where}:", key, list(AXES))
    made = {name: _texts(fields, name, getattr(Axes(), name)) for name in AXES if name != "seeds"}
    if "seeds" not in fields:
        raise fields.error("seeds", "is missing", hint='e.g. seeds = "0-7"')
    return Axes(**made, seeds=_seeds(fields))


def _seeds(fields: Fields, key: str = "seeds") -> tuple[int, ...]:
    value = fields.peek(key)
    if isinstance(value, str):
        return parse_seeds(fields.text(key), f"{fields.where}: {key}")
    seeds = tuple(int(each) for each in fields.numbers(key, whole=True))
    if any(not 0 <= seed <= MAX_SEED for seed in seeds):
        raise fields.error(key, "has a seed that does not lie in 0..2^63 − 1")
    return tuple(dict.fromkeys(seeds))


def parse_seeds(text: str, what: str) -> tuple[int, ...]:
    """Parse `42,43,50-59` into seeds, each once."""
    found: dict[int, None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _RANGE.fullmatch(part)
        first = int(match["first"]) if match else 0
        last = int(match["last"] or first) if match else -1
        if not first <= last <= MAX_SEED:
            raise UsageError(f"{what} {shorten(text)}: {shorten(part)} is not a seed or a range of seeds", hint="e.g. 42,43,44 or 0-99")
        found |= dict.fromkeys(range(first, min(last, first + MOST_SEEDS) + 1))
        if len(found) > MOST_SEEDS:
            raise UsageError(f"{what} {shorten(text)}: more than {MOST_SEEDS:,} seeds")
    return tuple(found)


def _names(fields: Fields, where: str) -> dict[str, str]:
    made = {}
    for name in fields.names:
        if not _NAME.fullmatch(name):
            raise DataError(f"{where}: [names]: {shorten(name)} is not a valid short name", hint="letters, digits, . _ + and -, up to 40")
        made[name] = fields.text(name, limit=LONG)
    fields.done()
    return made


def _judge(fields: Fields) -> Judging:
    made = Judging(
        fields.text("baseline", "", limit=LONG),
        *(_texts(fields, key, ()) for key in ("challengers", "oracle", "metrics", "groups", "rivals")),
    )
    fields.done()
    return made


def _rules(fields: Fields) -> RulesText:
    made = RulesText(
        fields.seconds("checkpoint", 0.0), fields.seconds("restart_cost", 0.0), fields.flag("walltime_kill", False),
        fields.seconds("checkpoint_cost", 0.0), fields.seconds("drain", 0.0),
    )  # fmt: skip
    fields.done()
    return made


def _example(fields: Fields) -> Example:
    made = Example(fields.text("workload", limit=LONG), _texts(fields, "schedulers"), fields.whole("seed", 0, high=MAX_SEED))
    fields.done()
    return made


def _set(fields: Fields) -> SwitchSet:
    made = SwitchSet(
        fields.text("name"), _texts(fields, "fixed"), _texts(fields, "switches"), _texts(fields, "workloads", ())
    )  # fmt: skip
    if not made.fixed or not made.switches:
        raise fields.error("switches" if made.fixed else "fixed", "is empty: there is nothing to compare")
    fields.done()
    return made


def _agent(name: str, fields: Fields, where: str) -> AgentSpec:
    if not _AGENT.fullmatch(name):
        raise DataError(f"{where}: [agents]: {shorten(name)} is not a valid name of an agent", hint="letters, digits, . _ and -, up to 40")
    made = AgentSpec(
        env=fields.text("env"), learner=fields.text("learner"), workloads=_texts(fields, "workloads"), steps=_steps(fields),
        cluster=fields.text("cluster", ""), seeds=_seeds(fields) if "seeds" in fields else (0,), settings=_texts(fields, "settings", ()),
        start=fields.text("start", ""), objective=fields.text("objective", ""),
    )  # fmt: skip
    fields.done()
    return made


def _steps(fields: Fields) -> str:
    """Read a number, or a text such as `100k`."""
    given = fields.peek("steps") if "steps" in fields else None
    return str(fields.whole("steps", low=1)) if isinstance(given, int) and not isinstance(given, bool) else fields.text("steps")


def _settings(fields: Fields) -> dict[str, float | str]:
    texts = [name for name in fields.names if isinstance(fields.peek(name), str)]
    made = {name: fields.text(name, limit=100) if name in texts else fields.number(name, low=-1e15, high=1e15) for name in fields.names}
    fields.done()
    return made


def _check(made: Experiment, where: str) -> None:
    """Refuse an empty or too large product, names that refer to nothing, and unknown metrics."""
    _check_axes(made, where)
    _check_metrics(made, where)
    check_varied(made.vary, made.also, made.own, (*made.axes.workloads, *made.names), where)
    judge = {key: getattr(made.judge, key) for key in ("challengers", "oracle", "rivals")}
    named = [("[judge] baseline", name) for name in (made.judge.baseline,) if name]
    named += [(f"[judge] {key}", name) for key, names in judge.items() for name in names]
    named += [("[[examples]]", name) for example in made.examples for name in example.schedulers]
    named += [("[[sets]]", name) for each in made.sets for name in (*each.fixed, *each.switches)]
    for key, name in named:
        if name not in made.axes.schedulers:
            raise unknown_name(f"scheduler in {where}: {key}:", name, list(made.axes.schedulers))
    for name in (name for each in made.sets for name in each.workloads if name not in made.axes.workloads):
        raise unknown_name(f"workload in {where}: [[sets]]:", name, list(made.axes.workloads))
    _check_agents(made, where)


def _check_axes(made: Experiment, where: str) -> None:
    least = 1
    for name in AXES:
        if name == "workloads" and made.kind != "simulations":
            continue
        values: Sequence[Any] = getattr(made.axes, name)
        if not values:
            raise DataError(f"{where}: the axis {name} is empty: there is nothing to run", hint=f"give {name} in [axes]")
        twice, times = Counter(values).most_common(1)[0]
        if times > 1:
            raise DataError(f"{where}: {name}: {shorten(str(twice))} is given twice")
        least *= len(values) if name not in ("clusters", "objectives") else 1
    if least > MOST_RUNS:
        raise UsageError(f"{where}: at least {least:,} Runs; at most {MOST_RUNS:,}", hint="make an axis shorter")


def _check_metrics(made: Experiment, where: str) -> None:
    from gpuyard.metrics import resolve

    for key, names in {"[axes] objectives": made.axes.objectives, "[judge] metrics": made.judge.metrics}.items():
        for name in names:
            with placed(f"{where}: {key}"):
                found = resolve(name)[0]
            if key.startswith("[axes]") and not found.reproducible:
                raise DataError(f"{where}: {key}: {name} is a time of this machine's clock: nothing can be judged by it that repeats")


def _check_agents(made: Experiment, where: str) -> None:
    for name, agent in made.agents.items():
        if name in made.names:
            raise DataError(f"{where}: {name!r} is both an agent and a name")
        if not agent.seeds:
            raise DataError(f"{where}: [agents.{name}]: seeds is empty: there is nothing to train")
    trained = [(name, made.agents[name].seeds) for name in made.axes.schedulers if name in made.agents]
    for name, seeds in trained[1:]:
        if seeds != trained[0][1]:
            raise DataError(
                f"{where}: [agents.{name}]: seeds are not those of {trained[0][0]}",
                hint="agents are compared pair by pair, by training seed: give all the same seeds",
            )
