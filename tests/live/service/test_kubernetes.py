"""The JSON of a Kubernetes scheduler extender, against golden files. No Kubernetes was asked: the protocol alone is tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "data"
HOSTS = {"nodes": [{"names": ["gpu-a", "gpu-b"], "gpus": 4, "type": "a100", "cpus": 32, "memory": 256},
                   {"names": ["small"], "gpus": 1, "type": "t4", "cpus": 4, "memory": 16}]}  # fmt: skip


def golden(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


@pytest.fixture
def extended(remote):
    """A service on which one job holds two GPUs of gpu-b."""
    assert remote.ask("register", cluster=HOSTS, now=0)["ok"]
    assert remote.ask("pick", job="runs", request={"gpus": 2, "cpus": 4}, take=True)["parts"][0]["node"] == "gpu-a"
    return remote


def post(service, verb, body):
    """As Kubernetes does it: a URL, no header."""
    return service.fetch(f"/{service.token}/{verb}", json.dumps(body))


@pytest.mark.parametrize("case", ["names", "nodes", "no_room", "older_keys"])
@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_answers_are_golden(extended, verb, case):
    status, answer = post(extended, verb, golden(f"{case}_args"))
    assert status == 200
    assert answer == golden(f"{case}_{verb}")
    assert extended.ask("status")["waiting"] == 0  # the pod is not kept


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (None, "has no Pod"),
        ({"spec": {"containers": 3}}, "containers is not a list"),
        ({"spec": {"containers": [{"resources": {"requests": {"cpu": "many"}}}]}}, "'many' is not an amount"),
        ({"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": 1.5}}}]}}, "neither a whole number"),
        ({"spec": {"containers": [{"resources": {"requests": {"memory": "9" * 30}}}]}}, "is not an amount"),
    ],
)
def test_a_pod_that_cannot_be_read_is_an_error_as_kubernetes_expects_it(extended, pod, why):
    status, answer = post(extended, "filter", {"Pod": pod, "NodeNames": ["gpu-a"]})
    assert status == 200
    assert why in answer["Error"]
    assert answer["NodeNames"] is None
    status, answer = post(extended, "prioritize", {"Pod": pod, "NodeNames": ["gpu-a"]})
    assert (status, answer["ok"]) == (400, False)


def test_it_needs_registered_hosts(remote):
    remote.ask("forget")
    status, answer = post(remote, "filter", golden("names_args"))
    assert (status, answer["ok"]) == (400, False)
