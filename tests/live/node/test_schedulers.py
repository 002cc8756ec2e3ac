"""Schedulers of the registry on a node: who is stopped makes room for those who were chosen, and a scheduler that fails is replaced."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.live.node.advice.advisor import Advice
from gpuyard.live.node.core import Node, NodeSettings
from gpuyard.live.node.devices import NoGpus
from gpuyard.live.node.jobs import RunState, Submission
from gpuyard.model.decision import Action, Decision, Part
from support.nodes import COMPILING, TriedNode, until

CHECKPOINT = "trap 'echo saved; exit 0' USR1; echo ready; while :; do sleep 0.02; done"
AGAIN = "test $GPUYARD_PREEMPTIONS = 0 || exit 7; "


def actions(node: TriedNode) -> list[tuple[int, str]]:
    """Return what was decided, oldest first."""
    return [(job, what) for _, job, what, _ in reversed(node.client.call("decisions", limit=100)["decisions"])]


def test_a_job_that_is_stopped_makes_room_for_the_one_it_was_stopped_for(stopped):
    """In the order of submission it would be the first to start again; it waits until those have ended."""
    node = stopped.start(scheduler="fcfs/fewest/easy/srpt", cpus=2)
    large = node.shell(AGAIN + CHECKPOINT, cpus=2, estimate=1000.0, preemptible=True, checkpoint=1.0)
    until(lambda: node.state(large) == "RUNNING" and node.output(large), "it has begun")
    small = [node.shell("sleep 0.2", estimate=1.0) for _ in range(2)]
    node.await_scheduler()
    assert [job.state.value for job in node.ends(*small)] == ["DONE", "DONE"]
    done = node.ends(large)[0]
    assert (done.exit_code, done.preemptions, done.attempt) == (7, 1, 2)
    assert node.output(large) == "ready\nsaved\n"
    assert actions(node) == [
        (large, "start"), (large, "preempt"), (small[0], "start later"), (small[1], "start later"), (large, "start"),
    ]  # fmt: skip
    assert node.client.call("status")["trouble"] == ""


def test_a_learned_policy_runs_with_the_engine_alone(stopped):
    node = stopped.start(scheduler="learned:hpc/fewest/easy", cpus=2)
    jobs = [node.shell("true") for _ in range(3)]
    node.await_scheduler()
    assert [job.state.value for job in node.ends(*jobs)] == ["DONE"] * 3
    assert node.client.call("status")["used"] == "learned:hpc/fewest/easy"
    loaded = {line.split("/site-packages/")[-1].split("/")[0] for line in _maps_of_children(node.pid) if "/site-packages/" in line}
    assert "numba" in loaded
    assert loaded & {"jax", "jaxlib", "torch", "polars", "_polars_runtime_32"} == set()


def _maps_of_children(pid: int) -> list[str]:
    """Return the files that the processes below one have in their memory."""
    from gpuyard.live.node.running.shim import descendants

    return [line for each in descendants({pid}) for line in Path(f"/proc/{each}/maps").read_text().splitlines()]


def test_first_come_first_served_does_not_wait_until_its_scheduler_is_loaded(tmp_path):
    node = Node(tmp_path, NodeSettings(scheduler="fcfs/fewest/easy", cpus=1), NoGpus())
    try:
        first, second = submitted(node, "true"), submitted(node, "true")
        assert node.advisor.loading
        assert node.ask()
        advice = node.advisor.answer()
        assert advice is not None
        told(node, *advice.decisions)
        assert node.running == {first}
        settled(node, lambda: not node.running)
        assert answered(node) is None
        assert not node.advisor.loading
        assert node.ask()
        advice = answered(node)
        assert [each.job for each in advice.decisions] == [second]
        assert advice.seconds > 0
    finally:
        node.close()


@pytest.mark.parametrize("scheduler", ["sjf/fewest/easy", "priority", "learned:meta"])
def test_other_orders_wait(tmp_path, scheduler):
    node = Node(tmp_path, NodeSettings(scheduler=scheduler), NoGpus())
    assert (node.advisor.busy, node.advisor.stands_in) == (True, False)
    node.close()


@pytest.mark.parametrize("text", ["sjff", "{folder}/lacking.py:rule"])
def test_another_scheduler_takes_over_and_the_node_says_so(stopped, text):
    node = stopped.start(scheduler=text.format(folder=stopped.folder))
    assert node.ends(node.shell("true"))[0].state is RunState.done
    status = node.client.call("status")
    assert status["used"] == "fcfs/fewest/easy"
    assert status["trouble"].startswith(text.format(folder=stopped.folder))


# ── room, step by step ──


@pytest.fixture
def two_slots(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path, NodeSettings(scheduler="plain", cpus=2), NoGpus())
    made.executor.on_watch = made.executor.on_forget = lambda *_: None
    yield made
    for number in list(made.running):
        made.cancel([number])
        made.commit()
        settled(made, lambda: number not in made.running)  # noqa: B023
    made.close()


def settled(node: Node, true) -> None:
    """Do what a daemon's loop does until something is true."""
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        node.runs.settle()
        for number in list(node.executor.pids):
            if not Path(f"/proc/{node.executor.pids[number]}").exists() or node.executor.gone(node.book.jobs[number]):
                node.runs.shim_gone(number)
        while node.book.dirty:
            node.commit()
        time.sleep(0.005)


def submitted(node: Node, script: str, **asked) -> int:
    made = node.submit(Submission(("sh", "-c", script), env={"PATH": "/usr/bin:/bin"}, **asked).plain(), "", "me")
    node.commit()
    return made[0]


def told(node: Node, *decisions: Decision) -> None:
    node.follow(Advice(decisions))
    while node.book.dirty:
        node.commit()


def answered(node: Node) -> Advice | None:
    """Wait for the next word of the scheduler's process; the engine may have to be compiled."""
    assert select.select([node.advisor.fileno()], [], [], COMPILING)[0]
    return node.advisor.answer()


def start(number: int, gpus: float) -> Decision:
    return Decision(number, Action.START, (Part(0, gpus),))


@pytest.fixture
def full(two_slots: Node) -> tuple[Node, int, int]:
    """A node whose slots a job holds that may be stopped, and a job that was promised one of them."""
    node = two_slots
    large, small = submitted(node, CHECKPOINT, cpus=2, preemptible=True), submitted(node, "sleep 600")
    told(node, start(large, 2))
    settled(node, lambda: node.book.jobs[large].state is RunState.running)
    told(node, start(small, 1), Decision(large, Action.PREEMPT))
    assert node.book.jobs[small].state is RunState.pending
    return node, large, small


def test_to_the_scheduler_who_leaves_has_left_and_who_is_promised_has_begun(full):
    node, large, small = full
    other = submitted(node, "true")
    asked = []
    node.advisor.ask = asked.append
    assert node.ask()
    seen = dict(zip(asked[0].jobs.table["index"].tolist(), asked[0].live["running"].tolist(), strict=True))
    assert seen == {small: True, other: False}
    assert [int(asked[0].jobs.table["index"][each["row"]]) for each in asked[0].held] == [small]
    told(node, start(other, 1))  # there is room for one more
    settled(node, lambda: {small, other} <= node.running)
    assert node.book.jobs[large].preemptions == 1


@pytest.mark.parametrize("change", ["hold", "cancel"])
def test_a_promise_ends_with_its_job(full, change):
    node, large, small = full
    node.hold([small], True) if change == "hold" else node.cancel([small])
    node.commit()
    settled(node, lambda: large not in node.running)
    assert node.running == set()
    assert node.ask() is True  # the one that was stopped waits, and nothing is kept for others
    told(node, start(large, 2))
    settled(node, lambda: large in node.running)
