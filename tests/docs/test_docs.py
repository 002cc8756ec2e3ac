"""The documentation is executed: its Python runs, its `gpuyard` commands do what is printed below them, its links lead somewhere.

What a page says in fenced blocks, from top to bottom, happens in a folder of its own:

- a block with `title="NAME"` in its first line is written to that file;
- other `python` blocks are run, all blocks of a page in one namespace;
- every line of a `sh` block that begins with `gpuyard` is run and must succeed, or give the exit code in a `# exit N` at its end;
- `python examples/NAME.py > FILE` writes what the example prints;
- a `text` block right after a `sh` block is what its last command printed: each line of it must be there, spacing aside and lines
  with `…` left out.
"""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuyard.cli.main import run
from gpuyard.engine.state import NODE_ROW, SYSTEM_ROW, VISIBLE_NAMES
from gpuyard.metrics import METRICS
from gpuyard.policies import ORDERINGS, PLACEMENTS, PREEMPTIONS, SWITCHES
from gpuyard.traces import GENERATORS, READERS, TRANSFORMS
from support.nodes import clear

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#{1,6}\s+(?P<title>.+?)\s*$", re.M)
EXAMPLE = re.compile(r"^python examples/(\w+\.py) > (\S+)$", re.M)
EXIT = re.compile(r"#\s*exit (?P<code>\d+)\s*$")
SLOW = ("gpuyard bench",)
REGISTRIES = (METRICS, ORDERINGS, PLACEMENTS, PREEMPTIONS, SWITCHES, GENERATORS, READERS, TRANSFORMS)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its options (`title="mine.py"`), its text."""

    language: str
    options: dict[str, str]
    text: str


def blocks(page: Path) -> Iterator[Block]:
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        language, *words = match["info"].split() or [""]
        yield Block(language, {name: value.strip('"') for name, _, value in (word.partition("=") for word in words)}, match["body"])


def commands(text: str) -> Iterator[tuple[list[str], int]]:
    """The arguments of each `gpuyard` line of a block, and the exit code that is promised."""
    for line in text.replace("\\\n", " ").splitlines():
        line = line.strip()
        if line.startswith("gpuyard") and not line.startswith(SLOW):
            promised = EXIT.search(line)
            yield shlex.split(line, comments=True)[1:], int(promised["code"]) if promised else 0


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


EXECUTED = [page for page in PAGES if any(block.language in ("python", "sh") for block in blocks(page))]


@pytest.fixture(autouse=True)
def registries_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page registers is gone after its test."""
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_things", dict(registry.items()))


@pytest.fixture
def node_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A page that starts a node starts it in a folder of its own, and leaves nothing running."""
    folder = tmp_path / "node"
    monkeypatch.setenv("GPUYARD_NODE", str(folder))
    yield
    clear(folder)


@pytest.mark.usefixtures("on_one_core", "node_of_its_own")
@pytest.mark.parametrize("page", EXECUTED, ids=name_of)
def test_what_a_page_says_to_do_works(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # what is printed is as wide as it needs to be
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks(page):
        assert set(block.options) <= {"title"}, "the site understands no other option"
        if "title" in block.options:
            Path(block.options["title"]).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, name_of(page), "exec"), namespace)  # noqa: S102
        elif block.language == "text" and printed is not None:
            missing = [line for line in squeezed(block.text) if line and "…" not in line and line not in squeezed(printed)]
            assert not missing, f"{name_of(page)} shows {missing}; printed is\n{printed}"
        printed = None
        if block.language == "sh":
            for name, target in EXAMPLE.findall(block.text):
                capsys.readouterr()
                runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
                Path(target).write_text(capsys.readouterr().out, encoding="utf-8")
            for arguments, promised in commands(block.text):
                capsys.readouterr()
                code = run(arguments)
                printed, talk = capsys.readouterr()
                assert code == promised, f"gpuyard {shlex.join(arguments)}: exit code {code}: {talk}"


def slug(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    for match in LINK.finditer(prose):
        if re.match(r"[a-z]+:", match["target"]):
            continue
        path, _, anchor = match["target"].partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), f"{match['target']} leads out of the repository"
        assert target.exists(), f"{match['target']} is not there"
        if anchor:
            titles = [heading["title"] for heading in HEADING.finditer(FENCE.sub("", target.read_text(encoding="utf-8")))]
            assert anchor in {slug(title) for title in titles}, f"{match['target']}: no such heading"


def linked(page: Path) -> set[Path]:
    """The pages that a page links to."""
    targets = (match["target"].partition("#")[0] for match in LINK.finditer(page.read_text(encoding="utf-8")))
    return {(page.parent / target).resolve() for target in targets if target.endswith(".md")}


def test_every_page_can_be_reached_from_the_index() -> None:
    seen, todo = set[Path](), [ROOT / "docs" / "index.md"]
    while todo:
        page = todo.pop()
        seen.add(page)
        todo += linked(page) - seen
    assert not {page.resolve() for page in ROOT.glob("docs/**/*.md")} - seen


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pictures_are_there(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    pictures = re.findall(r"!\[[^\]]*\]\(([^)\s#]+)", prose) + re.findall(r'(?:src|srcset)="([^"#]+)"', prose)
    assert [each for each in pictures if not (page.parent / each).is_file()] == []


def test_pictures_are_used_and_small() -> None:
    pages = [*PAGES, ROOT / "zensical.toml"]
    prose = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    pictures = sorted((ROOT / "docs" / "images").iterdir())
    assert [path.name for path in pictures if f"images/{path.name}" not in prose] == []
    assert sum(path.stat().st_size for path in pictures) < 2_000_000


def test_no_page_names_a_place_on_somebodys_machine() -> None:
    for page in PAGES:
        assert not re.search(r"(?<![\w.])/(?:work|root|home)/", page.read_text(encoding="utf-8")), name_of(page)


def names_in_table(page: Path, heading: str) -> set[str]:
    """The names in the first column of the tables under a heading."""
    text = page.read_text(encoding="utf-8")
    section = re.split(r"^#+ ", text[text.index(f"# {heading}\n") + 2 :], maxsplit=1, flags=re.M)[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize(
    ("heading", "columns"),
    [("Columns of a job", VISIBLE_NAMES), ("Columns of a node", NODE_ROW.names), ("Fields of the system", SYSTEM_ROW.names)],
)
def test_the_tables_of_columns_are_complete(heading: str, columns: tuple[str, ...]) -> None:
    assert names_in_table(ROOT / "docs" / "guides" / "first-policy.md", heading) == set(columns)
