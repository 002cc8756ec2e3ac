"""The JSON of a Kubernetes scheduler extender (`k8s.io/kube-scheduler/extender/v1`): `filter` and `prioritize`.

An extender is asked about one pod at a time, so it can neither order pods nor place gangs. Which hosts there are, and what runs on them,
comes from the service's own register: set `nodeCacheCapable: true`, so that Kubernetes sends names alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError, UsageError
from gpuyard.live.service.changes import add_request
from gpuyard.live.service.registered import RegisteredSite
from gpuyard.model.fields import Fields

BEST = 10  # MaxExtenderPriority
GPU = "nvidia.com/gpu"
_POD = "\0pod"  # no client can give a job that name
_GB = 1e9
_UNITS = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
          "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}  # fmt: skip
_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{0,9})?(?:[eE][+-]?\d)?)([numkMGTPE]|[KMGTPE]i|)")
Pick = Callable[[RegisteredSite, int, Array], int]  # of a row, on (nodes,) of which it may use: a node, or -1


def answer_filter(site: RegisteredSite, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return an ExtenderFilterResult: the candidates on which the pod has room."""
    found: dict[str, Any] = {"NodeNames": None, "Nodes": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
    try:
        pod, names, items = _arguments(given)
        row = _register(site, pod)
        try:
            fits = site.fits(row)
        finally:
            site.withdraw(_POD)
    except (DataError, UsageError) as error:
        return found | {"Error": str(error)}
    kept: list[str] = []
    for name in names:
        if not site.has_node(name):
            found["FailedAndUnresolvableNodes"][name] = "gpuyard does not know this node"
        elif not fits[site.node(name)]:
            found["FailedNodes"][name] = "no room for the pod's GPUs, cores and memory"
        else:
            kept.append(name)
    if items is None:
        return found | {"NodeNames": kept}
    return found | {"Nodes": {"metadata": {}, "items": [items[name] for name in kept]}}


def answer_prioritize(site: RegisteredSite, given: Mapping[str, Any], pick: Pick) -> list[dict[str, Any]]:
    """Return a HostPriorityList: 10 for the host that the placement takes, 9 for the one it takes without that, down to 0."""
    pod, names, _ = _arguments(given)
    row = _register(site, pod)
    left = np.zeros(len(site.cluster.nodes), bool)
    left[[site.node(name) for name in names if site.has_node(name)]] = True
    scores: dict[str, int] = {}
    try:
        for score in range(BEST, 0, -1):
            node = pick(site, row, left) if left.any() else -1
            if node < 0:
                break
            scores[site.cluster.nodes.names[node]] = score
            left[node] = False
    finally:
        site.withdraw(_POD)
    return [{"Host": name, "Score": scores.get(name, 0)} for name in names]


def _arguments(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str], dict[str, Any] | None]:
    """Return the pod, the names of the candidates, and their objects by name if these were sent. Go ignores the case of keys."""
    folded = {str(key).lower(): value for key, value in given.items()}
    pod, names, nodes = folded.get("pod"), folded.get("nodenames"), folded.get("nodes")
    if not isinstance(pod, dict):
        raise DataError("request: has no Pod")
    items = None
    if names is None:
        listed = nodes.get("items") if isinstance(nodes, dict) else None
        if not isinstance(listed, list):
            raise DataError("request: has neither NodeNames nor Nodes")
        items = {_node_name(each): each for each in listed}
        names = list(items)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError("request: NodeNames is not a list of texts")
    return pod, names, items


def _node_name(node: object) -> str:
    metadata = node.get("metadata") if isinstance(node, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str):
        raise DataError("request: a node has no metadata.name")
    return name


def _register(site: RegisteredSite, pod: Mapping[str, Any]) -> int:
    """Register the pod as a waiting job, and return its row."""
    asked = {"cpus": 0.0, "memory": 0.0, "gpus": 0.0}
    for container, most in _containers(pod):
        resources = container.get("resources")
        requests = {**_table(resources, "limits"), **_table(resources, "requests")}
        amounts = {key: _amount(requests.get(name, 0)) for key, name in (("cpus", "cpu"), ("memory", "memory"), ("gpus", GPU))}
        amounts["memory"] /= _GB
        for key, amount in amounts.items():
            asked[key] = max(asked[key], amount) if most else asked[key] + amount
    if not any(asked.values()):
        asked["cpus"] = 0.001  # a pod that asks for nothing fits anywhere
    return add_request(site, _POD, Fields(asked, "pod"))


def _containers(pod: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], bool]]:
    """Return the containers, whose requests add up, and then the first ones, of which the largest counts."""
    spec = pod.get("spec")
    found: list[tuple[Mapping[str, Any], bool]] = []
    for key, most in (("containers", False), ("initContainers", True)):
        listed = spec.get(key) if isinstance(spec, dict) else None
        if listed is not None and not (isinstance(listed, list) and all(isinstance(each, dict) for each in listed)):
            raise DataError(f"pod: {key} is not a list of tables")
        found += [(each, most) for each in listed or ()]
    return found


def _table(resources: object, key: str) -> Mapping[str, Any]:
    found = resources.get(key) if isinstance(resources, dict) else None
    return found if isinstance(found, dict) else {}


def _amount(value: object) -> float:
    """Return a quantity: 2, "500m", "64Gi"."""
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    if match is None:
        raise DataError(f"pod: {str(value)[:40]!r} is not an amount such as 2, 500m or 64Gi")
    return float(match[1]) * _UNITS[match[2]]
