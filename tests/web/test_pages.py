"""The pages in Chromium: what is shown and read, by mouse, keyboard and screen reader, with nothing asked of any other host."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.web.rows import MOST_ROWS
from gpuyard.web.sources.node import NodeSource
from support.dashboards import TOKEN, ManyJobs, TriedDashboard, row_of
from support.nodes import TriedNode, until
from web.conftest import ATTACK

AXE = Path(__file__).parent / "vendor" / "axe.min.js.gz"
PATIENCE = 20_000  # ms: a machine that tests something else at the same time is slow
PAGES = ("/", "/results", "/training", "/compare")
SEEN = """(seen) => {
  Object.defineProperty(document, "hidden", { value: !seen, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


class Sight:
    """A page in a browser, and what it asked for."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.asked: list[str] = []
        self.errors: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if "Content Security Policy" in message.text else None)

    def go(self, path: str) -> Any:
        self.page.goto(self.address + path)
        self.page.wait_for_selector("h1")
        return self.page

    def check(self) -> None:
        """Nothing was asked of another host, nothing failed, and no attack ran."""
        assert [url for url in self.asked if not url.startswith((f"{self.address}/", "data:"))] == []
        assert self.errors == []
        assert self.page.evaluate("window.hacked") is None


@pytest.fixture
def sight(browser: Any, crowd: TriedDashboard) -> Iterator[Sight]:
    """A desk, looking at many jobs."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    seen = Sight(context.new_page(), crowd.address)
    yield seen
    seen.check()
    context.close()


def serious(page: Any) -> list[tuple[str, str]]:
    """Return the serious violations that axe-core finds, each with the place."""
    page.evaluate(gzip.decompress(AXE.read_bytes()).decode())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [(each["id"], each["nodes"][0]["html"][:200]) for each in found["violations"] if each["impact"] in ("serious", "critical")]


def detail_of(crowd: TriedDashboard, kind: str, folder: str) -> str:
    names = {each["folder"]: each["name"] for each in crowd.get(f"/api/{kind}")["experiments" if kind == "results" else "trainings"]}
    return f"/{kind}?show={names[folder]}"


def test_many_jobs_by_pages_of_which_only_those_in_sight_are_there(sight: Sight):
    page = sight.go("/")
    page.wait_for_selector("tr[data-number='1']")
    table = page.locator(".jobs table")
    assert table.get_attribute("aria-rowcount") == "130005"
    assert page.locator(".jobs tbody tr[data-number]").count() < 60
    assert page.locator("h1").inner_text() == "4 of 4 GPUs are busy, 30,000 jobs wait"
    page.evaluate("const box = document.querySelector('.jobs'); box.scrollTop = 34 * 100000")
    page.wait_for_selector("tr[aria-rowindex='100010'][data-number]")
    assert page.locator(".jobs tbody tr[data-number]").count() < 60
    page.click("button:has-text('Waiting')")
    page.wait_for_selector(".jobs table[aria-rowcount='30001']")
    page.click(".jobs th button:has-text('Devices')")
    page.wait_for_selector("th[aria-sort='descending'] >> text=Devices")
    page.wait_for_selector("tr[aria-rowindex='2'] >> text=8")
    page.fill("input[type=search]", "user-3")
    page.wait_for_selector(".jobs table[aria-rowcount='2308']")
    assert len([url for url in sight.asked if "/api/live/jobs?" in url]) < 40


def test_the_name_of_a_job_is_text(sight: Sight):
    """In the table, in the dialog, in charts, among the decisions and in titles of results."""
    page = sight.go("/")
    row = page.locator("tr[data-number='1']")
    row.wait_for()
    assert ATTACK[:99] in row.inner_text()
    row.click()
    dialog = page.locator("dialog[open]")
    dialog.locator("text=because").wait_for()
    assert ATTACK in dialog.inner_text() and "because <img" in dialog.inner_text()
    page.keyboard.press("Escape")
    assert ATTACK in page.locator(".log").inner_text()
    page.goto(f"{sight.address}/results")
    page.wait_for_selector(f"text={ATTACK}")
    assert page.locator("main img, main script").count() == 0


def test_every_page_is_read_by_a_screen_reader(sight: Sight, crowd: TriedDashboard):
    """axe-core finds nothing serious, light and dark, on a desk and on a phone; every chart has its table."""
    one, two = (detail_of(crowd, "results", name) for name in ("one", "two"))
    paths = [*PAGES, two, f"{one}&{two.partition('?')[2]}", detail_of(crowd, "training", "trainings/first")]
    for path in paths:
        page = sight.go(path)
        page.wait_for_selector(".card")
        page.wait_for_timeout(300)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert serious(page) == [], (path, scheme)
        assert page.locator(".chart").count() == page.locator(".chart details").count()
        assert page.locator("h1").count() == 1
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert serious(page) == [], (path, "phone")
        page.set_viewport_size({"width": 1280, "height": 900})
    page = sight.go("/")
    page.wait_for_selector("tr[data-number='1']")
    page.locator(".chart summary").first.click()
    page.wait_for_selector(".chart table td")
    page.locator("tr[data-number='1']").click()
    page.wait_for_selector("dialog[open] dl")
    assert serious(page) == []


def test_a_phone_shows_names_and_states_of_jobs(browser: Any, crowd: TriedDashboard):
    context = browser.new_context(viewport={"width": 390, "height": 844})
    seen = Sight(context.new_page(), crowd.address)
    page = seen.go("/")
    row = page.locator("tr[data-number='1']")
    row.wait_for()
    number, name, state = (row.locator(":visible").filter(has_text=text).first.bounding_box() for text in ("1", "<img", "running"))
    assert number and name and state
    assert name["width"] > 120 and number["x"] < name["x"] < state["x"] and state["x"] + state["width"] <= 390
    seen.check()
    context.close()


def test_twenty_viewers_see_the_same_and_a_page_that_nobody_sees_lets_go(browser: Any):
    source = ManyJobs(running=1, waiting=2)
    served = TriedDashboard(source)
    contexts = [browser.new_context() for _ in range(4)]
    try:
        viewers = [Sight(context.new_page(), served.address) for context in contexts for _ in range(5)]
        for each in viewers:
            each.go("/")
        until(lambda: served.get("/api/live")["viewers"] == 20, "all watch")
        source.changed = [row_of(4, "PENDING", "a new one")]
        for each in viewers:
            each.page.wait_for_selector("tr:has-text('a new one')")
            each.check()
        first = viewers[0].page
        first.evaluate(SEEN, False)
        until(lambda: served.get("/api/live")["viewers"] == 19, "one has gone")
        source.changed = [row_of(5, "PENDING", "meanwhile")]
        viewers[1].page.wait_for_selector("tr:has-text('meanwhile')")
        assert first.locator("tr:has-text('meanwhile')").count() == 0
        first.evaluate(SEEN, True)
        first.wait_for_selector("tr:has-text('meanwhile')")
        assert served.get("/api/live")["viewers"] == 20
    finally:
        for context in contexts:
            context.close()
        served.stop()


def test_everything_is_reached_by_keyboard(sight: Sight):
    page = sight.go("/")
    page.wait_for_selector("tr[data-number='1']")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.locator("tr[data-number='2'] button").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] >> text=Job 2")
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    page.locator("nav a", has_text="Compare").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("h1 >> text=Which scheduler")
    assert page.title() == "Compare · gpuyard"
    page.go_back()
    page.wait_for_selector("text=30,000 jobs wait")


def test_results_and_trainings_are_shown(sight: Sight, crowd: TriedDashboard):
    page = sight.go("/results")
    page.wait_for_selector("text=4 experiments")
    for folder in ("one", "two"):
        page.locator("li", has_text=folder).locator("input").first.check()
    page.click("text=Show the two side by side")
    page.wait_for_selector("h1 >> text=Two experiments side by side")
    assert page.locator("table tbody tr").count() >= 2
    page.goto(sight.address + detail_of(crowd, "results", "two"))
    page.wait_for_selector("h1 >> text=Second")
    page.click("text=Manifests of its Runs")
    page.wait_for_selector("pre")
    page = sight.go("/training")
    page.click("a:has-text('trainings/first')")
    page.wait_for_selector("h1 >> text=PickJob · ppo")
    page.wait_for_selector(".uplot canvas")


def test_curves_grow_while_they_are_watched(browser: Any, tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text('{"env": "PickJob"}')
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"update": 1, "steps": 64, "return": -9}\n{"update": 2, "steps": 128, "return": -8}\n')
        file.flush()
        served = TriedDashboard(ManyJobs(running=1), tmp_path)
        context = browser.new_context()
        seen = Sight(context.new_page(), served.address)
        try:
            page = seen.go("/training")
            page.click("a:has-text('mine')")
            page.wait_for_selector("text=under way · 2 updates")
            page.wait_for_selector(".key:has-text('−8')")
            file.write('{"update": 3, "steps": 192, "return": -1.5, "loss": 0.25}\n')
            file.flush()
            page.wait_for_selector("text=under way · 3 updates")
            page.wait_for_selector(".key:has-text('−1.5')")
            page.wait_for_selector("h2:has-text('Loss')")  # a curve that begins later
            seen.check()
        finally:
            context.close()
            served.stop()


def test_a_comparison_is_started_followed_and_read(sight: Sight):
    page = sight.go("/compare")
    page.fill("#workload", "demo:jobs=60")
    page.fill("#cluster", "2x8:a100")
    page.fill("#seeds", "2")
    for box in reversed(page.locator("input[name=scheduler]:checked").all()[2:]):
        box.uncheck()
    page.click("button:has-text('Compare')")
    page.wait_for_selector("text=Played back in time", timeout=120_000)
    assert page.locator(".card table tbody tr").count() >= 2
    page.wait_for_selector("text=jobs done")
    assert "60 of 60 jobs done" in page.locator("main").inner_text()
    page.evaluate("const at = document.querySelector('input[type=range]'); at.value = 0; at.dispatchEvent(new Event('input'))")
    page.wait_for_selector("text=/[0-9] of 60 jobs done/")
    assert "60 of 60 jobs done" not in page.locator("main").inner_text()
    assert serious(page) == []


def test_what_changes_is_seen_at_once_also_by_who_comes_back(browser: Any):
    """The server is killed and comes back; nobody has to load the page again."""
    source = ManyJobs(running=1, waiting=2)
    served = TriedDashboard(source)
    context = browser.new_context()
    seen = Sight(context.new_page(), served.address)
    try:
        page = seen.go("/")
        page.wait_for_selector("text=2 jobs wait")
        source.changed = [row_of(3, "RUNNING"), row_of(4, "PENDING", "a new one")]
        page.wait_for_selector("tr:has-text('a new one')")
        served.stop()
        page.wait_for_selector("text=no connection; trying again")
        source.waiting = 6
        served.start()
        page.wait_for_selector("text=connected")
        page.wait_for_selector("text=6 jobs wait")
        page.wait_for_selector("tr[data-number='7']")
        assert seen.page.evaluate("window.hacked") is None
    finally:
        context.close()
        served.stop()


def test_the_token_is_asked_for_and_actions_need_it(browser: Any, node: TriedNode):
    """A real node: cancelled from a page."""
    number = node.shell("echo hello; sleep 60", name="mine")
    served = TriedDashboard(NodeSource(node.folder), token=TOKEN, actions=True)
    context = browser.new_context()
    seen = Sight(context.new_page(), served.address)
    try:
        page = seen.page
        page.goto(f"{served.address}/")
        page.fill("#token", "wrong")
        page.click("text=Look")
        page.wait_for_selector("text=that is not the token")
        page.goto(f"{served.address}/#token={TOKEN}")
        page.reload()
        page.wait_for_selector(f"tr[data-number='{number}']")
        assert TOKEN not in page.url and TOKEN not in page.evaluate("document.cookie")
        page.click(f"tr[data-number='{number}']")
        page.click("text=The end of its output")
        page.wait_for_selector("pre:has-text('hello')")
        page.on("dialog", lambda dialog: dialog.accept())
        page.click("button:has-text('Cancel')")
        page.wait_for_selector("text=Done.")
        assert node.ends(number)[0].state.value == "KILLED"
        seen.check()
    finally:
        context.close()
        served.stop()


def test_no_page_of_rows_is_larger_than_100_kb_and_the_scripts_are_small(crowd: TriedDashboard):
    for sort in ("rank", "name", "user", "wait"):
        for first in (0, 30_000, 129_950):
            status, page, headers = crowd.ask(f"/api/live/jobs?sort={sort}&first={first}&count={MOST_ROWS}")
            assert status == 200 and page["total"] == 130_004 and int(headers["content-length"]) < 100_000
    static = Path(__file__).parents[2] / "src" / "gpuyard" / "web" / "static"
    assert sum(path.stat().st_size for path in static.rglob("*.js")) <= 150_000
    assert not [path for path in static.rglob("*") if path.suffix in (".js", ".html", ".css") and "http" in _without_names(path)]


def _without_names(path: Path) -> str:
    """Return a file's text without the names of namespaces, and the address in a comment of uPlot's."""
    return path.read_text().replace("https://github.com/leeoniya/uPlot", "").replace("http://www.w3.org", "")
