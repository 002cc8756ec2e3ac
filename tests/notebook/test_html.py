"""What a notebook and a terminal show of each noun: what matters, escaped, small, and without any program."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

import gpuyard as gy
from gpuyard.experiments.judging.answering.plain import plain_answer
from gpuyard.model.cluster_file import cluster_from_dict

EVIL = "<script>alert(1)</script>"
MOST_BYTES = 16_000


class Tags(HTMLParser):
    """Collects the text, and checks that every element is closed in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in ("path", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag != "path":
            assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += f" {data}"


def shown(thing: object) -> str:
    """The text of the HTML, checked on the way."""
    made = thing._repr_html_()  # type: ignore[attr-defined]
    tags = Tags()
    tags.feed(made)
    assert tags.open == []
    assert not tags.seen & {"script", "link", "iframe", "img"}
    assert "http" not in made
    assert len(made.encode()) < MOST_BYTES
    return " ".join(tags.text.split())


@pytest.fixture(scope="module")
def result() -> gy.Result:
    return gy.simulate("demo:jobs=300", "8x8:a100", "sjf/fewest/easy", segments=True)


def test_a_result_shows_who_ran_what_and_how_well(result):
    text = shown(result)
    assert text.startswith("Result Shortest job first + EASY sjf/fewest/easy 300 jobs of demo:jobs=300 on 8x8:a100")
    assert "mean wait" in text
    assert f"{100 * gy.measure(result, 'utilization'):.1f} % GPUs busy" in text
    assert "jobs waiting" in text
    assert "of 64" in text


def test_a_result_says_what_went_wrong():
    found = gy.simulate("demo:jobs=300", "1x8:a100", "fcfs")
    rejected = gy.counts(found)["rejected"]
    assert rejected > 0
    assert f"{rejected:,} rejected: more GPUs than its partition has" in shown(found)


def test_a_result_of_a_program_opens_no_file(result):
    from dataclasses import replace

    assert "./evil.py:rule" in shown(replace(result, scheduler="./evil.py:rule/fewest/easy"))
    assert "no such checkpoint" not in shown(replace(result, scheduler="./no.safetensors"))


def test_a_workload_shows_its_size_and_its_jobs(result):
    text = shown(result.workload)
    assert "300 jobs" in text
    assert "users" in text
    assert "GPUs of a job" in text
    assert "estimates: requested" in text
    assert "no jobs" in shown(result.workload.head(0))


def test_a_cluster_shows_what_is_in_it():
    assert "16 × 8 128 1 80 GB" in shown(gy.load_cluster("16x8:a100"))
    mixed = {
        "name": "lab", "partitions": {"train": {"quota": 12}, "dev": {}},
        "nodes": [{"count": 2, "gpus": 8, "type": "a100", "partition": "train"}, {"gpus": 2, "type": "t4", "partition": "dev"}],
    }  # fmt: skip
    text = shown(cluster_from_dict(mixed))
    assert "18 GPUs in 3 nodes, 2 partitions" in text
    assert "train (at most 12 GPUs) a100 2 × 8 16" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sjf/best/easy", "ordering sjf Shortest job first placement best"),
        ("meta:backlog(fcfs, sjf/best/easy)@10m", "switches between 2 schedulers, asked every 10.0 min 0 fcfs"),
        ("milp:k=8(saf/fewest/easy)", "builds on saf/fewest/easy"),
    ],
)
def test_a_scheduler_shows_its_slots(text, says):
    assert says in re.sub(r" slot policy| scheduler(?= 0)", "", shown(gy.parse_scheduler(text)))


def test_a_snapshot_shows_who_waits():
    simulation = gy.Simulation(gy.load_workload("demo:jobs=200"), gy.load_cluster("1x32:a100"))
    snapshot = simulation.advance()
    while snapshot is not None and len(snapshot.waiting) < 8:
        simulation.apply(gy.Scheduler("fcfs").decide(snapshot))
        snapshot = simulation.advance()
    assert snapshot is not None
    text = shown(snapshot)
    assert f"{len(snapshot.waiting)} waiting" in text
    assert f"{int(snapshot.free_gpus().sum())} of 32 GPUs free" in text
    assert str(snapshot.jobs.id[snapshot.waiting[0]]) in text
    assert "more" in text


def test_a_comparison_shows_the_answer_and_the_table_best_first():
    found = gy.compare(["fcfs", "fcfs/fewest/easy", "sjf/fewest/easy", "ljf"], "demo:jobs=300", "8x8:a100", seeds=6)
    text = shown(found)
    best = min(found.lines, key=lambda line: line.values["delay"].mean).scheduler
    worst = max(found.lines, key=lambda line: line.values["delay"].mean).scheduler
    assert "6 seeds" in text
    answer = plain_answer(found)
    assert answer is not None
    assert answer.sentence in text
    assert answer.sure in text
    assert text.index(f" {best} ") < text.index(f" {worst} ")
    assert " baseline " in text
    assert "Mean wait" in shown(found.table)


def test_words_and_colours_say_better_and_worse():
    found = gy.compare(["fcfs/fewest/easy", "saf/fewest/easy", "ljf"], "demo", "16x8:a100", seeds=6)._repr_html_()
    assert re.search(r'class="good">\d[\d.]* % shorter<small>', found)
    assert re.search(r'class="bad">[\d,.]+ % longer<small>', found)


def test_names_from_outside_are_escaped():
    workload = gy.Workload.from_frame({"submit": [0], "runtime": [1]}, name=EVIL)
    cluster = cluster_from_dict({"name": EVIL, "nodes": [{"gpus": 8, "type": EVIL}]})
    for thing in (workload, cluster, gy.simulate(workload, cluster, "fcfs")):
        assert "<script" not in thing._repr_html_()
        assert "alert(1)" in shown(thing)
    assert "\x1b" not in repr(gy.Workload.from_frame({"submit": [0], "runtime": [1]}, name="a\x1b[31mb"))


def test_a_terminal_shows_a_few_lines(result):
    lines = repr(result).splitlines()
    assert lines[0] == "Shortest job first + EASY  (sjf/fewest/easy)"
    assert len(lines) == 6
    assert repr(gy.Scheduler("sjf", backfill="easy")) == "Scheduler('sjf/fewest/easy')"
    assert repr(gy.load_cluster("16x8:a100")) == "Cluster('16x8:a100': 128 GPUs in 16 nodes)"
    assert repr(result.workload).startswith("Workload('demo:jobs=300': 300 jobs")
    assert "fcfs" in repr(gy.compare(["fcfs", "sjf"], result.workload, result.cluster))


def test_what_cannot_be_shown_does_not_raise(result):
    from dataclasses import replace

    assert "when shown" in repr(replace(result, table=result.table[:3]))


def test_figures_show_themselves(result):
    for figure in (result.gantt(), result.gantt(0, 86_400), result.plot_queue()):
        image, about = figure._repr_png_()
        assert image.startswith(b"\x89PNG")
        assert about["width"] > 400


def test_a_gantt_needs_segments_and_a_window(result):
    with pytest.raises(gy.GpuyardError, match=r"does not say which job held which GPUs.*with segments=True"):
        gy.simulate("demo:jobs=60", "8x8:a100", "fcfs", segments=False).gantt()
    with pytest.raises(gy.GpuyardError, match="the window from 5 to 2 s is empty"):
        result.gantt(5, 2)


def test_figures_leave_the_callers_settings_alone(result):
    import matplotlib

    before = dict(matplotlib.rcParams)
    result.plot_queue()
    assert dict(matplotlib.rcParams) == before
