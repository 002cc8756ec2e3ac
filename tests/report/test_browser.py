"""The page in a real browser, opened from a file with the network off, on a desk and on a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
DESK, PHONE = (1280, 900), (390, 844)


@dataclass
class Heard:
    """What the page did besides being shown."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tool:
        opened = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(core_report: Path) -> Path:
    return core_report


def opened(browser: Any, path: Path, size: tuple[int, int], scheme: str = "light") -> tuple[Any, Heard]:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, offline=True, color_scheme=scheme)
    page, heard = context.new_page(), Heard()
    page.on("console", lambda message: heard.errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: heard.errors.append(str(error)))
    page.on("request", lambda request: heard.requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-charts=drawn]", timeout=60_000)
    return page, heard


@pytest.mark.parametrize("size", [DESK, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_charts_are_drawn_without_errors_and_without_a_network(browser: Any, report: Path, size: tuple[int, int], scheme: str) -> None:
    page, heard = opened(browser, report, size, scheme)
    assert heard.errors == []
    assert [url for url in heard.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    plots = page.locator(".plot").count()
    assert plots >= 8
    assert page.locator(".plot .main-svg").count() >= plots
    sizes = page.eval_on_selector_all(".plot > div", "all => all.map(each => each.getBoundingClientRect().height)")
    assert len(sizes) == plots and min(sizes) > 100
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.context.close()


def test_a_click_on_the_legend_hides_a_scheduler(browser: Any, report: Path) -> None:
    page, heard = opened(browser, report, DESK)
    plot = page.locator("#chart-2")
    plot.scroll_into_view_if_needed()
    state = "name => document.getElementById('chart-2').data.filter(each => each.name === name).map(each => each.visible)"
    assert all(each in (None, True) for each in page.evaluate(state, "edf"))
    plot.locator(".legend .traces", has_text="edf").locator(".legendtoggle").click()
    for _ in range(100):  # the library waits for a second click first
        if "legendonly" in page.evaluate(state, "edf"):
            break
        page.wait_for_timeout(50)
    assert set(page.evaluate(state, "edf")) == {"legendonly"}
    assert "legendonly" not in page.evaluate(state, "srpt")
    assert heard.errors == []
    page.context.close()


def test_a_mark_tells_its_values(browser: Any, report: Path) -> None:
    page, heard = opened(browser, report, DESK)
    page.locator("#chart-1").scroll_into_view_if_needed()
    page.locator("#chart-1 .bars .point").first.hover(force=True)
    page.wait_for_selector("#chart-1 .hoverlayer .hovertext")
    assert "[" in (page.locator("#chart-1 .hoverlayer").text_content() or "")
    assert heard.errors == []
    page.context.close()


def test_a_click_on_a_header_sorts(browser: Any, report: Path) -> None:
    page, _ = opened(browser, report, DESK)
    table = page.locator("table.sortable").first

    def means() -> list[float]:
        found = table.locator("tbody tr:not(.other) td:nth-of-type(1)").evaluate_all("all => all.map(each => +each.dataset.v)")
        return list(found)

    button = table.locator("thead th").nth(1).locator("button")
    button.click()
    assert means() == sorted(means())
    button.click()
    assert means() == sorted(means(), reverse=True)
    assert table.locator("thead th").nth(1).get_attribute("aria-sort") == "descending"
    assert table.locator("tbody tr").last.get_attribute("class") == "other"
    page.context.close()


def test_wide_tables_scroll_in_their_own_box_on_a_phone(browser: Any, report: Path) -> None:
    page, _ = opened(browser, report, PHONE)
    boxes = page.eval_on_selector_all(
        ".box", "all => all.map(each => [each.scrollWidth > each.clientWidth, each.getBoundingClientRect().right])"
    )
    assert any(wide for wide, _ in boxes)
    assert all(right <= PHONE[0] for _, right in boxes)
    page.context.close()


def test_a_browser_that_cannot_unpack_says_so(browser: Any, report: Path) -> None:
    context = browser.new_context(offline=True)
    context.add_init_script("delete globalThis.DecompressionStream")
    page = context.new_page()
    page.goto(report.as_uri())
    page.wait_for_selector("#notice:not([hidden])")
    assert "figures" in page.locator("#notice").inner_text()
    context.close()
