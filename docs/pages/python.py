"""The reference page of the Python API, made from signatures and docstrings: `python docs/pages/python.py > docs/reference/python.md`."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import gpuyard
from gpuyard.experiments.judging.summary import Standing, Summary
from gpuyard.model.result import ResultRow, SegmentRow, TimelineRow
from gpuyard.networks.export import Purpose, export_network

INTRODUCTION = """\
# Python

Made by `python docs/pages/python.py`; do not edit.

```python
import gpuyard as gy

result = gy.simulate("demo", "16x8:a100", "sjf/fewest/easy")
print(result)  # a small table; a notebook shows it with charts
result.jobs("pandas").nlargest(5, "wait")  # a row per job, with names
found = gy.compare(["fcfs/fewest/easy", "sjf/fewest/easy"], "demo", "16x8:a100")
```

What stands for what, wherever a signature says so:

| in a signature | may be |
|---|---|
| `WorkloadLike` | a `Workload`, or the text or path of one: `demo`, `family:shape=bursty`, `log.swf.gz` |
| `ClusterLike` | a `Cluster`, or the text or path of one: `16x8:a100`, a preset, `lab.toml` |
| `SchedulerLike` | a scheduler or its text (`sjf/fewest/easy`), an ordering function, or anything with `decide(snapshot)` |
| `Array` | a numpy array; its shape is given in brackets, as `(jobs,)` |

Everything else raises `WrongTypeError`, a `TypeError` that says what was expected. Times are in seconds. Environments are described
[in their guide](../guides/environments.md), metrics [on their page](metrics.md).
"""
GROUPS: dict[str, tuple[str, ...]] = {
    "Simulate and measure": ("simulate", "simulate_many", "compare", "measure", "measure_by", "counts"),
    "Load": ("load_workload", "load_cluster", "parse_scheduler", "with_estimate"),
    "Nouns": ("Workload", "Jobs", "Cluster", "Rules", "Scheduler", "Meta", "Result"),
    "Policies of your own": ("ordering", "placement", "preemption", "switch"),
    "Step by step": ("Simulation", "Snapshot", "Decision", "Action", "Part"),
    "Errors": ("GpuyardError",),
}
NOT_MADE = ("Workload", "Jobs", "Cluster", "Result", "Snapshot", "Summary", "Standing")  # other calls make these
SAID_BY_NAME = {"Summary": "What `compare` returns", "Standing": "A line of a comparison"}
WIDTH = 100  # columns of a signature


def page() -> str:
    """Return the whole page as Markdown."""
    parts = [INTRODUCTION]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [section(name, getattr(gpuyard, name)) for name in names]
        if "compare" in names:
            parts += [section(each.__name__, each) for each in (Summary, Standing)]
        if "Result" in names:
            parts += [rows(f"Columns of `result.{name}`", kind) for name, kind in ROWS.items()]
    parts.append("## Networks of your own\n\nFrom `gpuyard.networks.export`; [the guide](../guides/your-own-agent.md) shows how.\n")
    parts += [section(each.__name__, each) for each in (export_network, Purpose)]
    return "\n".join(parts)


ROWS = {"table": ResultRow, "timeline": TimelineRow, "segments": SegmentRow}


def section(name: str, thing: Any) -> str:
    """Return the heading of a name, how it is called, what it says of itself, and what it has."""
    lead = SAID_BY_NAME.get(name)
    parts = [
        f"### {name}",
        f"{lead}." if lead else "",
        "" if name in NOT_MADE or is_enum(thing) else block(called(name, thing)),
        prose(thing),
    ]
    if inspect.isclass(thing):
        fields = list(attributes(thing)) + [(key, type_of(value), doc_of(value)) for key, value in members(thing) if is_value(value)]
        parts += [table(fields)] if fields else []
        parts += [method(name, key, value) for key, value in members(thing) if not is_value(value)]
    return "\n\n".join(part for part in parts if part) + "\n"


def rows(title: str, kind: type) -> str:
    return f"#### {title}\n\n{prose(kind)}\n\n{table(list(attributes(kind)))}\n"


def is_enum(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, enum.Enum)


def is_value(member: Any) -> bool:
    return isinstance(member, property | cached_property)


def type_of(member: Any) -> str:
    found = inspect.signature(member.fget if isinstance(member, property) else member.func).return_annotation
    return "" if found is inspect.Signature.empty else str(found)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield what people may use of a class: its public methods and properties."""
    for name, member in vars(kind).items():
        if not name.startswith("_") and (is_value(member) or inspect.isroutine(member)):
            yield name, member


def attributes(kind: type) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and meaning of the fields of a class; the meaning is the comment where the field is declared."""
    source = textwrap.dedent(inspect.getsource(kind))
    lines, declared = source.splitlines(), ast.parse(source).body[0]
    hidden = {field.name for field in dataclasses.fields(kind) if not field.init} if dataclasses.is_dataclass(kind) else set()
    assert isinstance(declared, ast.ClassDef)
    for node in declared.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id not in hidden:
            if not node.target.id.startswith("_"):
                yield (
                    node.target.id,
                    ast.unparse(node.annotation),
                    comment(lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset or 0 :]),
                )
        if isinstance(node, ast.Assign) and is_enum(kind) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, "", comment(lines[node.lineno - 1][node.end_col_offset or 0 :])


def comment(rest: str) -> str:
    """Return the comment at the end of a line."""
    return re.sub(r"^\s*#\s*(type: ignore\S*\s*)?", "", rest) if "#" in rest else ""


def table(fields: list[tuple[str, str, str]]) -> str:
    lines = [f"| `{name}` | {f'`{kind}`' if kind else ''} | {cell(text)} |" for name, kind, text in fields]
    return "\n".join(["| has | type | is |", "|---|---|---|", *lines]).replace(" | None`", " or None`")


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def method(owner: str, name: str, member: Any) -> str:
    function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
    bound = f"{owner}.{name}" if isinstance(member, classmethod | staticmethod) else f"{owner.lower()}.{name}"
    return f"{block(called(bound, function, bound=True))}\n\n{doc_of(function)}"


def block(text: str) -> str:
    return f"```py\n{text}\n```"


def called(name: str, thing: Any, *, bound: bool = False) -> str:
    """Write how a function is called, on one line, or a line for each argument where that is too wide."""
    signature = inspect.signature(thing)
    shown = [each for each in signature.parameters.values() if not each.name.startswith("_")][1 if bound else 0 :]
    texts, star = [], False
    for each in shown:
        if each.kind is each.KEYWORD_ONLY and not star:
            texts, star = [*texts, "*"], True
        star = star or each.kind is each.VAR_POSITIONAL
        texts.append(argument(each))
    back = (
        "" if inspect.isclass(thing) or signature.return_annotation in (signature.empty, "None") else f" -> {signature.return_annotation}"
    )
    line = f"{name}({', '.join(texts)}){back}"
    return line if len(line) <= WIDTH else f"{name}(\n" + "".join(f"    {text},\n" for text in texts) + f"){back}"


def argument(each: inspect.Parameter) -> str:
    """Write an argument with its type; of defaults that are objects only that there is one."""
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    default = each.default
    shown = json.dumps(default) if isinstance(default, str) else repr(default)
    plain = default is None or (isinstance(default, str | int | float | tuple) and len(shown) < 20)
    given = "" if default is each.empty else f" = {shown}" if plain else " = …"
    return f"{stars}{each.name}{'' if each.annotation is each.empty else f': {each.annotation}'}{given}"


def doc_of(thing: Any) -> str:
    return inspect.cleandoc(getattr(thing, "__doc__", "") or "")


def prose(thing: Any) -> str:
    return inspect.cleandoc(vars(thing).get("__doc__") or "") if inspect.isclass(thing) else doc_of(thing)


if __name__ == "__main__":
    sys.stdout.write(page())
