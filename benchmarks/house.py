"""Print the figures of the house: sizes, repeated code, names with two meanings, import cycles and untyped parameters.

    python benchmarks/house.py [--json] [--list FIGURE] [PACKAGE]

`--list` names the places behind a figure. `tests/test_house.py` keeps each figure from getting worse. PACKAGE is a folder of Python
files, `src/gpuyard` unless given; the script reads the files as text and imports none of them.
"""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import json
import keyword
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "gpuyard"
RUN = 6  # lines that two places share before they count as a duplicate
TOKENS = 30  # in such a run; fewer, and the run is mostly brackets and commas
COMMON = 8  # places of one run; more, and it is an idiom
SMALL = 60  # lines of a file that belongs into the only one that imports it
LONG_FUNCTION = 40
MID_SENTENCE = re.compile(
    r"(Of|That|Those|Its|As|What|Which|Who|Whom|And|Or|But|Also|Than|With|Without|By|From|All of|The same)\b|There is none|Told"
)
_SPACE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A source file, read and parsed."""

    name: str  # dotted
    path: str  # below the package's parent
    text: str
    tree: ast.Module
    nodes: Sequence[ast.AST]  # of the whole tree

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    def every(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """Yield the nodes of some kinds."""
        return (node for node in self.nodes if isinstance(node, kinds))


@dataclass(frozen=True)
class Figure:
    """One number about the package, with the value to aim at and the places that make it up."""

    title: str
    value: int
    aim: str
    places: Sequence[str] = ()


def read_package(package: Path) -> list[Module]:
    """Read every Python file of a package, sorted by path."""
    modules = []
    for file in sorted(package.rglob("*.py")):
        path = file.relative_to(package.parent)
        parts = path.with_suffix("").parts
        text = file.read_text()
        tree = ast.parse(text)
        modules.append(Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), str(path), text, tree, list(ast.walk(tree))))
    return modules


def functions(modules: Sequence[Module]) -> list[tuple[int, str]]:
    """Return (lines, place) of every function, longest first."""
    found = []
    for module in modules:
        for node in module.every(*Function.__args__):
            found.append((node.end_lineno - node.lineno + 1, f"{module.path}:{node.lineno} {node.name}"))
    return sorted(found, reverse=True)


def folders(modules: Sequence[Module]) -> dict[str, tuple[int, int]]:
    """Return {folder: (files, lines)}, subfolders not included."""
    sizes: dict[str, tuple[int, int]] = {}
    for module in modules:
        folder = str(Path(module.path).parent)
        files, lines = sizes.get(folder, (0, 0))
        sizes[folder] = (files + 1, lines + module.lines)
    return dict(sorted(sizes.items()))


def code_lines(module: Module) -> list[tuple[int, list[str]]]:
    """Return (line number, tokens) of the lines that carry code; names, strings and numbers become placeholders.

    Imports, comments, docstrings, blank lines and lines of punctuation alone are left out.
    """
    skipped: set[int] = set()
    for node in module.every(ast.Import, ast.ImportFrom, ast.Expr):
        if not isinstance(node, ast.Expr) or (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):
            skipped.update(range(node.lineno, node.end_lineno + 1))
    lines: dict[int, list[str]] = defaultdict(list)
    nested = 0  # f-strings around this token: since Python 3.12 they come in parts
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        kind, inside = tokenize.tok_name[token.type], nested
        nested += (kind == "FSTRING_START") - (kind == "FSTRING_END")
        if not inside and token.type not in _SPACE and token.start[0] not in skipped:
            lines[token.start[0]].append(_placeholder(kind, token.string))
    return [(at, tokens) for at, tokens in sorted(lines.items()) if any(token.isalnum() for token in tokens)]


def _placeholder(kind: str, text: str) -> str:
    if kind == "NAME" and not keyword.iskeyword(text):
        return "n"
    return {"STRING": "s", "FSTRING_START": "s", "NUMBER": "0"}.get(kind, text)


def duplicates(modules: Sequence[Module]) -> list[str]:
    """Return the pairs of files (or a file with itself) that share a run of lines of the same shape, one place for each."""
    places: dict[tuple[str, ...], list[tuple[str, int, int]]] = defaultdict(list)
    for module in modules:
        lines = code_lines(module)
        for first in range(len(lines) - RUN + 1):
            run = lines[first : first + RUN]
            if sum(len(tokens) for _, tokens in run) >= TOKENS:
                places[tuple(" ".join(tokens) for _, tokens in run)].append((module.path, first, run[0][0]))
    pairs: dict[tuple[str, str], str] = {}
    for same in places.values():
        if len(same) > COMMON:
            continue
        for (a, i, line_a), (b, j, line_b) in itertools.combinations(same, 2):
            if a != b or j - i >= RUN:
                pairs.setdefault((a, b), f"{a}:{line_a} ~ {b}:{line_b}")
    return sorted(pairs.values())


def shared_class_names(modules: Sequence[Module]) -> list[str]:
    """Return the class names that stand for more than one class, with their files."""
    where: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.every(ast.ClassDef):
            where[node.name].append(f"{module.path}:{node.lineno}")
    return [f"{name}: {', '.join(found)}" for name, found in sorted(where.items()) if len(found) > 1]


def _outside_type_checking(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield child
            if not isinstance(child, ast.expr):
                yield from _outside_type_checking(child)


def import_graph(modules: Sequence[Module]) -> dict[str, set[str]]:
    """Return {module: the package's modules it imports}; imports inside functions count, those for the type checker do not."""
    names = {module.name for module in modules}
    graph = {}
    for module in modules:
        wanted: set[str] = set()
        for node in _outside_type_checking(module.tree):
            if isinstance(node, ast.Import):
                wanted.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                wanted.update(name if name in names else node.module for name in full)
        graph[module.name] = (wanted & names) - {module.name}
    return graph


def import_cycles(graph: dict[str, set[str]]) -> list[str]:
    """Return the groups of modules that import each other, directly or by way of others."""
    reach = {name: set(direct) for name, direct in graph.items()}
    for through in graph:  # Warshall
        for name in graph:
            if through in reach[name]:
                reach[name] |= reach[through]
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in graph if name in reach[name]}
    return sorted(", ".join(sorted(group)) for group in groups)


def small_files(modules: Sequence[Module], graph: dict[str, set[str]]) -> list[str]:
    """Return the short files that belong into the only one that imports them.

    What a package collects in its `__init__` does not, nor do the verbs that `cli/verbs.py` collects.
    """
    users: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for name in graph[module.name]:
            users[name].append(module.path)
    return [
        f"{module.path} ({module.lines} lines), imported by {users[module.name][0]}"
        for module in modules
        if module.lines < SMALL and len(users[module.name]) == 1
        if not module.path.endswith("__init__.py") and not users[module.name][0].endswith(("__init__.py", "cli/verbs.py"))
    ]


def parameters(modules: Sequence[Module]) -> tuple[int, list[str]]:
    """Return the number of named parameters, and those annotated with plain `Any`."""
    count, untyped = 0, []
    for module in modules:
        for node in module.every(*Function.__args__):
            for parameter in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
                if parameter.arg not in ("self", "cls"):
                    count += 1
                    if isinstance(parameter.annotation, ast.Name) and parameter.annotation.id == "Any":
                        untyped.append(f"{module.path}:{parameter.lineno} {node.name}({parameter.arg})")
    return count, untyped


def mid_sentence(modules: Sequence[Module]) -> list[str]:
    """Return the docstrings whose first word continues a sentence that nobody began."""
    found = []
    for module in modules:
        for node in module.every(ast.Module, ast.ClassDef, *Function.__args__):
            text = ast.get_docstring(node) or ""
            if MID_SENTENCE.match(text):
                found.append(f"{module.path}:{getattr(node, 'lineno', 1)} {text.splitlines()[0]}")
    return found


def figures(modules: Sequence[Module]) -> dict[str, Figure]:
    """Return every figure of a package by its short name."""
    lengths, sizes, graph = functions(modules), folders(modules), import_graph(modules)
    named, untyped = parameters(modules)
    files = sorted(((module.lines, module.path) for module in modules), reverse=True)
    crowded = sorted(((count, folder) for folder, (count, _) in sizes.items()), reverse=True)
    ninetieth = lengths[len(lengths) // 10][0] if lengths else 0
    long = [place for lines, place in lengths if lines > LONG_FUNCTION]

    def counted(title: str, aim: str, places: Sequence[str]) -> Figure:
        return Figure(title, len(places), aim, places)

    def largest(title: str, aim: str, sizes: Sequence[tuple[int, str]]) -> Figure:
        return Figure(title, sizes[0][0] if sizes else 0, aim, [f"{size} {place}" for size, place in sizes[:20]])

    return {
        "files": Figure("files", len(modules), ""),
        "lines": Figure("lines", sum(module.lines for module in modules), ""),
        "folder": largest("files in the largest folder", "≤ 15", crowded),
        "file": largest("lines of the longest file", "≤ 500", files),
        "functions": Figure("functions", len(lengths), ""),
        "p90": Figure("lines of a function, 90th percentile", ninetieth, "≤ 25"),
        "function": largest("lines of the longest function", f"≤ {LONG_FUNCTION}", lengths),
        "long": counted(f"functions over {LONG_FUNCTION} lines", "0", long),
        "duplicates": counted(f"pairs of files that share {RUN} lines or more", "≤ 30", duplicates(modules)),
        "classes": counted("class names with two meanings", "0", shared_class_names(modules)),
        "cycles": counted("import cycles", "0", import_cycles(graph)),
        "small": counted(f"files under {SMALL} lines with one importer", "0", small_files(modules, graph)),
        "parameters": Figure("parameters", named, ""),
        "any": counted("parameters of type Any", "< 300", untyped),
        "docstrings": counted("docstrings that begin mid-sentence", "0", mid_sentence(modules)),
    }


def show_table(modules: Sequence[Module], found: dict[str, Figure]) -> None:
    """Print files and lines per folder, then each figure beside its aim."""
    print(f"{'folder':<44}{'files':>7}{'lines':>9}")
    for folder, (files, lines) in folders(modules).items():
        print(f"{folder:<44}{files:>7}{lines:>9,}")
    print(f"\n{'figure':<12}{'':<46}{'value':>8}  aim")
    for name, figure in found.items():
        print(f"{name:<12}{figure.title:<46}{figure.value:>8,}  {figure.aim}".rstrip())


def show_json(modules: Sequence[Module], found: dict[str, Figure]) -> None:
    """Print the same as one JSON object."""
    sizes = {folder: {"files": files, "lines": lines} for folder, (files, lines) in folders(modules).items()}
    print(
        json.dumps(
            {"folders": sizes, "figures": {k: {"title": f.title, "value": f.value, "aim": f.aim} for k, f in found.items()}}, indent=1
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the package and print what was asked for."""
    parser = argparse.ArgumentParser(description="Print the figures of the house.")
    parser.add_argument("package", nargs="?", type=Path, default=PACKAGE, help="folder of the package (default: src/gpuyard)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--list", metavar="FIGURE", help="print the places behind a figure, one a line")
    options = parser.parse_args(arguments)
    modules = read_package(options.package)
    found = figures(modules)
    if options.list is not None:
        if options.list not in found:
            parser.error(f"unknown figure {options.list!r}; choose from {', '.join(found)}")
        print(*found[options.list].places, sep="\n")
        return 0
    show: Callable[[Sequence[Module], dict[str, Figure]], None] = show_json if options.json else show_table
    show(modules, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
