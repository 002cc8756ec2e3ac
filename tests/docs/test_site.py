"""The site made from docs/: every page has a place, nothing is fetched from elsewhere, and the search works from a disk."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "zensical.toml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copy(CONFIG, folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def listed(nav: list[Any] | dict[str, Any] | str) -> list[str]:
    """The pages of a navigation, from top to bottom."""
    if isinstance(nav, str):
        return [nav]
    return [page for each in (nav.values() if isinstance(nav, dict) else nav) for page in listed(each)]


def test_every_page_has_one_place_in_the_navigation() -> None:
    pages = listed(tomllib.loads(CONFIG.read_text("utf-8"))["project"]["nav"])
    assert len(pages) == len(set(pages))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    missing = there - set(pages)
    assert {page for page in missing if not page.startswith("decisions/")} == set(), "add it to nav in zensical.toml"
    assert set(pages) - there == set()
    assert pages.index("guides/reading-results.md") == 1


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r"""<(?:script|img|iframe|source|link)\b[^>]*?(?:src|srcset|href)=["']?(?:https?:)?//[^"'> ]+""")
    imported = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")
    pages, styles = sorted(site.rglob("*.html")), sorted(site.rglob("*.css"))
    assert len(pages) > 50 and styles
    assert {path.name: found for path in pages if (found := fetched.findall(path.read_text("utf-8")))} == {}
    assert [path.name for path in styles if imported.search(path.read_text("utf-8"))] == []
    assert not list(site.rglob("*.py"))


def test_blocks_and_lists_are_recognised(site: Path) -> None:
    """Where the site reads Markdown differently from a repository browser, its marks are left over in the text."""
    paragraphs = re.compile(r"<p>(.*?)</p>", re.S)
    marks = re.compile(r"```|(?:^|\n)\s*(?:[-*|]|\d+\.) ")
    pages = {path.relative_to(site).as_posix(): paragraphs.findall(path.read_text("utf-8")) for path in site.rglob("*.html")}
    assert [(name, text[:80]) for name, texts in pages.items() for text in texts if marks.search(text)] == []


def test_the_search_knows_every_page(site: Path) -> None:
    places = {item["location"].partition("#")[0] for item in json.loads((site / "search.json").read_text("utf-8"))["items"]}
    assert {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - places == {"404.html"}


@pytest.mark.slow
def test_the_search_works_on_pages_opened_from_a_disk(site: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium")
    with sync_api.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.set_viewport_size({"width": 1280, "height": 800})
        page.wait_for_timeout(300)
        page.keyboard.press("Control+k")
        page.keyboard.type("bounded slowdown", delay=20)
        page.wait_for_selector("a[href*='#bsld']", timeout=20_000)
        assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
        browser.close()
