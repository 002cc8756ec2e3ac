"""When the scheduler is worth asking."""

from __future__ import annotations

import pytest

from gpuyard.live.node.core import Node, NodeSettings
from gpuyard.live.node.devices import NoGpus
from gpuyard.live.node.jobs import RunState, Submission


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path, NodeSettings(scheduler="plain", cpus=2), NoGpus())
    yield made
    made.close()


@pytest.mark.parametrize("preemptible", [False, True])
def test_a_node_is_crowded_when_nothing_can_start(node, preemptible):
    asked = Submission(("true",), cwd="/", cpus=1.0, preemptible=preemptible)
    for free in (2.0, 1.0):
        assert (node.free, node.crowded) == (free, False)
        (number,) = node.submit(asked.plain(), "", "me")
        node.commit()
        node.runs.start(node.book.jobs[number], ("cpu",), visible=False)
        node.commit()
        assert node.book.jobs[number].state is RunState.starting
    node.submit(asked.plain(), "", "me")
    node.commit()
    assert (node.free, node.crowded) == (0.0, not preemptible)  # who may be stopped can make room


def test_a_job_without_gpus_stays_one_where_there_are_cpu_slots_alone(node):
    asked = Submission(("true",), cwd="/", cpus=2.0, gpus=0.0)
    (number,) = node.submit(asked.plain(), "", "me")
    node.commit()
    job = node.book.jobs[number]
    assert job.asked.gpus == 0.0
    assert node.size_of(job) == 2.0  # slots, also when a later daemon works it out again
