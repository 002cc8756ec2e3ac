"""The reference pages are what the registries and the command line say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import gpuyard
from gpuyard.policies import BACKFILLS, DECIDERS, ORDERINGS, PLACEMENTS, PREEMPTIONS, SWITCHES

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("cli", "metrics", "policies", "python")
BUILT_IN = "gpuyard."


def made(name: str) -> str:
    """Return the page that docs/pages/NAME.py prints."""
    spec = importlib.util.spec_from_file_location(f"{name}_page", DOCS / "pages" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.page())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_up_to_date(name) -> None:
    command = f"python docs/pages/{name}.py"
    assert (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8") == made(name), f"run: {command} > docs/reference/{name}.md"
    assert command in made(name)


@pytest.mark.parametrize("registry", [ORDERINGS, PLACEMENTS, BACKFILLS, PREEMPTIONS, SWITCHES, DECIDERS], ids=lambda r: r.what)
def test_every_built_in_policy_is_on_it(registry) -> None:
    text = made("policies")
    for name, policy in registry.items():
        function = getattr(policy, "function", None) or getattr(policy, "make", None)
        if function is None or function.__module__.startswith(BUILT_IN):
            assert f"| `{name}` |" in text


def test_every_public_name_is_on_the_page_of_the_python_api() -> None:
    lines = made("python").splitlines()
    assert [name for name in gpuyard.__all__ if f"### {name}" not in lines] == []
    silent = [
        place for place, line in enumerate(lines) if line == "```" and place + 2 < len(lines) and lines[place + 2].startswith(("#", "`"))
    ]
    assert [lines[place - 1] for place in silent] == []  # each call is followed by what it does
