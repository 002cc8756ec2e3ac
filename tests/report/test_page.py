"""The page of `compare`: in a browser with the network off, on a desk, on a phone and on paper; and what it says."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.cli.main import run
from gpuyard.report.page.courses import AreaCourse, course_chart
from gpuyard.report.writing import write_report

DESK, PHONE = (1280, 800), (390, 844)
PAPER = (688, 1000)  # a sheet of A4 without its margins, px
SCHEDULERS = ("fcfs", "fcfs/fewest/easy", "sjf/fewest/easy", "saf/fewest/easy", "ljf/fewest/easy", "f1/fewest/easy", "wfp3/fewest/easy",
              "sjf/best/easy", "learned:gpu")  # fmt: skip
SACCT = Path(__file__).parents[2] / "examples" / "sacct_demo.py"
EVIL = "</style><img src=x onerror=alert(1)>\"'&"
CASES = ("log", "operator", "generated", "several", "one", "simulation", "explanation", "experiment", "changes")


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory, core_report: Path, changed_folder: Path) -> dict[str, Path]:
    """Case → a page: of a log with all that a page can have, of seeds, of several comparisons, of one scheduler, of two experiments."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "a rather long name of the log of a whole site.csv").write_text(crowded_log())
    log = str(folder / "a rather long name of the log of a whole site.csv")
    every = [part for name in SCHEDULERS for part in ("--scheduler", name)]
    (folder / "sacct.txt").write_text(subprocess.check_output([sys.executable, SACCT], text=True))
    calls = {
        "log": [log, *every, "--cluster", "8x4:a100"],
        "operator": [str(folder / "sacct.txt")],
        "generated": ["demo:jobs=150", *every, "--cluster", "16x8:a100", "--seeds", "6"],
        "several": ["demo:jobs=60", "family", "--cluster", "4x4:a100", "--cluster", "2x8:a100", "--estimate", "exact", "--estimate",
                    "noisy:0.3", *every[:6], "--seeds", "5"],
        "simulation": ["simulate", log, "--cluster", "8x4:a100"],
        "explanation": ["explain", "learned:gpu", "--workload", "lublin:jobs=60,nodes=256 on 32x8:gpu", "--episodes", "2"],
        "one": ["demo:jobs=60", "--scheduler", "fcfs", "--cluster", "16x8:a100", "--seeds", "1"],
    }  # fmt: skip
    for name, arguments in calls.items():
        assert (
            run(
                [
                    *([] if arguments[0] in ("simulate", "explain") else ["compare"]),
                    *arguments,
                    "-f",
                    "json",
                    "--report",
                    str(folder / f"{name}.html"),
                ]
            )
            == 0
        )
    changes = write_report(changed_folder, folder / "changes")
    return {name: folder / f"{name}.html" for name in calls} | {"experiment": core_report, "changes": changes}


def crowded_log() -> str:
    """A log with many users and partitions, rows that are dropped, and names that no page may take for its own."""
    draw = random.Random(0)
    rows = ["id,submit,start,runtime,gpus,walltime,user,partition"]
    for k in range(600):
        submit, user, part = 60 * k, f"user{draw.randrange(40)}{EVIL if k % 7 == 0 else ''}", f"partition-{draw.randrange(9)}{EVIL}"
        runtime = draw.choice([60, 600, 4000, 20_000, 50_000])
        quoted = [f'"{name.replace(chr(34), chr(34) * 2)}"' for name in (user, part)]
        rows.append(",".join([str(k), str(submit), str(submit + draw.randrange(9000)), str(runtime), str(draw.choice([1, 1, 2, 4, 12])),
                              str(2 * runtime), *quoted]))  # fmt: skip
    rows += [f"{k},90000,90000,,1,100,a,b" for k in range(700, 705)]
    return "\n".join(rows) + "\n"


@contextmanager
def opened(browser: Any, path: Path, size: tuple[int, int], scheme: str = "light") -> Iterator[Any]:
    """A page with no network that complains of nothing."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, offline=True, color_scheme=scheme)
    page, heard = context.new_page(), []
    page.on("console", lambda message: heard.append(message.text))
    page.on("request", lambda request: heard.append(request.url) if not request.url.startswith(("file:", "data:")) else None)
    page.goto(path.as_uri())
    yield page
    assert heard == []
    context.close()


SHOWN = "[...document.querySelectorAll('svg')].filter(each => each.checkVisibility())"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("size", "screens"), [(DESK, 1), (PHONE, 2)])
def test_question_answer_and_chart_come_first(
    browser: Any, pages: dict[str, Path], case: str, scheme: str, size: tuple[int, int], screens: int
) -> None:
    with opened(browser, pages[case], size, scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        below = page.evaluate(f"{SHOWN}[0].getBoundingClientRect().bottom")
        assert below <= screens * size[1]
        assert page.locator("h1").bounding_box()["y"] < page.locator(".answer").bounding_box()["y"] < below
        assert page.evaluate(f"{SHOWN}.every(each => each.getBoundingClientRect().right <= innerWidth)")


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_the_chart_is_drawn_for_the_width_not_shrunk(browser: Any, pages: dict[str, Path], size: tuple[int, int]) -> None:
    with opened(browser, pages["log"], size) as page:
        scale = page.evaluate(f"{SHOWN}.map(each => each.getBoundingClientRect().width / each.viewBox.baseVal.width)")
        assert all(0.85 <= each <= 1.2 for each in scale)


@pytest.mark.parametrize("case", CASES)
def test_it_prints_on_two_sheets_and_nothing_is_cut(browser: Any, pages: dict[str, Path], case: str, tmp_path: Path) -> None:
    with opened(browser, pages[case], PAPER, "dark") as page:
        page.emulate_media(media="print")
        for sheet in page.locator(".sheet").all():
            ends = sheet.evaluate("each => [...each.children].map(part => part.getBoundingClientRect()).map(box => [box.top, box.bottom])")
            *parts, foot = [end for end in ends if end[1] > end[0]]
            assert max(bottom for _, bottom in parts) <= foot[0]
        assert page.evaluate(
            "[...document.querySelectorAll('table, svg')].every(each => each.getBoundingClientRect().right <= innerWidth + 1)"
        )
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        printed = page.pdf(prefer_css_page_size=True)
    assert printed.count(b"/Type /Page\n") == 2


def test_six_series_unless_opened(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["log"], DESK) as page:
        assert page.locator(".hero svg.wide > g").count() == 6
        assert "4 more schedulers are in the tables" in page.locator(".hero").inner_text()
        page.locator("summary", has_text="Charts").click()
        assert page.locator("details[open] svg.wide").first.locator("> g").count() == len(SCHEDULERS) + 1


def test_who_loses_is_read_on_a_phone_without_scrolling(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["operator"], PHONE) as page:
        boxes = page.locator(".card .box")
        assert boxes.count() == 2
        assert all(box.evaluate("each => each.scrollWidth <= each.clientWidth") for box in boxes.all())


def test_the_log_is_no_scheduler_on_paper(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["operator"], PAPER) as page:
        page.emulate_media(media="print")
        told = page.locator(".operator > .print").all_inner_texts()
    assert "First come, first served + EASY" in " ".join(told)
    assert not re.search("What actually happened|more (is|are) worse", " ".join(told))


def test_wide_tables_scroll_visibly_on_a_phone(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["log"], PHONE) as page:
        page.locator("summary", has_text="All schedulers").click()
        box = page.locator("details[open] .box")
        assert box.evaluate("each => each.scrollWidth > each.clientWidth + 20")
        assert box.evaluate("each => each.getBoundingClientRect().right") <= PHONE[0]
        assert "linear-gradient" in box.evaluate("each => getComputedStyle(each).backgroundImage")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


class Seen(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("case", CASES)
def test_it_runs_nothing_loads_nothing_and_takes_no_name_for_its_own(pages: dict[str, Path], case: str) -> None:
    seen = Seen(pages[case].read_text("utf-8"))
    assert not {"script", "iframe", "object"} & {tag for tag, _ in seen.tags}
    assert all(
        value is None or value.startswith("data:") for _, each in seen.tags for name, value in each.items() if name in ("src", "href")
    )
    assert not any(name.startswith("on") for _, each in seen.tags for name in each)
    policy = next(each["content"] for tag, each in seen.tags if tag == "meta" and each.get("http-equiv") == "Content-Security-Policy")
    assert policy and "default-src 'none'" in policy and "script-src" not in policy
    if case == "log":
        assert EVIL in seen.text and "img" not in {tag for tag, _ in seen.tags}


def test_the_page_answers_all_questions_in_their_order(pages: dict[str, Path]) -> None:
    text = Seen(pages["log"].read_text("utf-8")).text
    places = [text.index(words) for words in (
        "Would another scheduler have served these users better?", "Who gains, who pays", "What happened", "By size of the job",
        "By partition", "By user", "How far to trust it", "What to do next", "Who gains most", "All schedulers, all numbers",
        "How this was made", "5 of 605 (0.826 %)", "How the statistics work",
    )]  # fmt: skip
    assert places == sorted(places)


def test_the_page_of_a_simulation_says_who_waits_and_how_it_was_made(pages: dict[str, Path]) -> None:
    text = Seen(pages["simulation"].read_text("utf-8")).text
    for words in (
        "How does first come, first served, no backfilling serve these jobs?", "wait at once, after", "Who waits how long", "By partition",
        "Users who wait most in all", "5 of 605 (0.826 %)", "32 GPUs in 8 nodes, as asked for: 8x4:a100",
    ):  # fmt: skip
        assert words in text
    assert "user-1" in text and "onerror=alert(1)>\"'&user" not in text


def test_means_over_time_keep_their_area(tmp_path: Path) -> None:
    """A course that is drawn with fewer steps shows as many job-seconds as there were."""
    edges = np.array([0.0, 1.0, 5.0, 100.0])
    drawn = course_chart(edges, [AreaCourse("jobs", np.array([10.0, 0.0, 2.0]), 10.0, "10", "bad")], [], "jobs")
    path = re.findall(r' d="M52.0 106([^"]*)z"', drawn)[0]
    steps = [(float(a), float(b)) for a, b in re.findall(r"V([\d.]+)H([\d.]+)", path)]
    ends = [52.0, *(x for _, x in steps)]
    area = sum((106 - y) * (right - left) for (y, _), left, right in zip(steps, ends, ends[1:], strict=False))
    assert area / (ends[-1] - 52.0) * 100 / 84 * 10 == pytest.approx(10 + 2 * 95, rel=0.01)
