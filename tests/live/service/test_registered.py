"""Hosts and jobs are told once, then what changes; decisions are those of a simulation in the same state."""

from __future__ import annotations

import http.client
import json
from dataclasses import replace

import numpy as np
import pytest
from tests.live.state.test_file import busy

from gpuyard import Simulation, load_cluster, parse_scheduler
from gpuyard.errors import GpuyardError
from gpuyard.live.deciding import Asked
from gpuyard.live.service.registered import MOST_LABELS, RegisteredSite, empty_site
from gpuyard.live.service.verbs import PROTOCOL, VERBS, Desk
from gpuyard.live.state.file import SavedSnapshot, snapshot_bytes, snapshot_from
from gpuyard.model.decision import Action, Part
from gpuyard.model.fields import Fields
from gpuyard.model.jobs import LABELS
from gpuyard.testing.strategies import random_case

SCHEDULER = "sjf/fewest/easy"
HOSTS = {"nodes": [{"count": 2, "gpus": 4, "type": "a100", "cpus": 32, "memory": 256}, {"gpus": 2, "type": "t4", "cpus": 8, "memory": 64}]}


class Told:
    """A desk, asked without a socket."""

    def __init__(self, scheduler=SCHEDULER):
        self.desk = Desk(parse_scheduler(scheduler))

    def ask(self, verb, **arguments):
        text = json.dumps({"verb": verb, **arguments})
        return VERBS[verb](self.desk, Fields(json.loads(text), "request"))

    def told(self, **change):
        return self.ask("update", changes=[change])


@pytest.fixture
def told():
    found = Told()
    assert found.ask("register", cluster=HOSTS) == {"ok": True, "hosts": 3, "running": 0, "waiting": 0}
    return found


def started(site, snapshot, decision):
    """The changes that carry a decision of a simulation out."""
    names = {index: str(ident) for index, ident in zip(snapshot.jobs.index.tolist(), snapshot.jobs.table["id"].tolist(), strict=True)}
    nodes = snapshot.cluster.nodes.names
    assert decision.action is Action.START
    parts = [{"node": nodes[part.node], "gpus": part.gpus, "devices": list(part.devices)} for part in decision.parts]
    return {"job": names[decision.job], "do": "start", "parts": parts}


# ── one truth ──


@pytest.mark.parametrize("number", [0, 1, 3, 4, 5, 6])
def test_deltas_lead_to_the_decisions_of_a_simulation(number):
    """Jobs are added as they come, started as decided, and ended as they end: at each instant everything is decided alike."""
    case, service = random_case(number), Told()
    sim = Simulation(case.workload, replace(case.cluster, outages=()), rules=case.rules)
    decider, known = Asked(parse_scheduler(SCHEDULER)), set()
    snapshot = sim.advance()
    service.desk.site = RegisteredSite(SavedSnapshot(snapshot))
    known = set(snapshot.jobs.index.tolist())
    while snapshot is not None:
        site = service.desk.site
        here = snapshot.rows()
        for index in [each for each in known if each not in here]:
            service.told(job=str(int(case.workload.jobs.table["id"][index])), do="end")
        for index in [each for each in here if each not in known]:
            add_from(site, snapshot, here[index])
        known = set(here)
        saved = SavedSnapshot(snapshot)
        expected, order, _ = decider.decide(saved)
        answer = service.ask("decide", now=snapshot.now)
        assert answer["order"] == [saved.name(row) for row in order]
        changes = [started(site, snapshot, each) for each in expected]
        found = [{"job": each["job"], "do": "start", "parts": each["parts"]} for each in answer["decisions"]]
        assert found == changes
        sim.apply(expected)
        assert service.ask("update", changes=found, now=snapshot.now)["ok"]
        snapshot = sim.advance()


def add_from(site, snapshot, row):
    """Register a job of a simulation."""
    jobs = snapshot.jobs.table[row]
    columns = {name: jobs[name] for name in jobs.dtype.names if name not in ("index", "id", *labels_of(snapshot, row))}
    site.set_clock(snapshot.now)
    name = str(int(jobs["id"]))
    site.add(name, columns, labels_of(snapshot, row))


def labels_of(snapshot, row):
    return {column: getattr(snapshot.jobs, name)[int(snapshot.jobs.table[column][row])] for column, name in LABELS.items()}


def test_a_registered_snapshot_is_decided_as_it_is(local):
    plain = json.loads(snapshot_bytes(busy()))
    expected = local.ask("decide", snapshot=plain)
    assert local.ask("register", snapshot=plain, now=busy().snapshot.now)["ok"]
    assert local.ask("decide") == expected
    found = snapshot_from(local.ask("snapshot")["snapshot"], "answer")
    assert snapshot_bytes(found) == snapshot_bytes(busy())
    assert local.ask("forget")["ok"]
    assert "no hosts are registered" in local.ask("decide")["error"]


# ── picking hosts ──


def test_a_host_is_picked_taken_and_given_back(told):
    add = {"gpus": 2, "cpus": 8, "memory": "32GB", "gpu_type": "t4"}
    first = told.ask("pick", job="a", request=add, take=True)
    assert first["parts"] == [{"node": "n2", "gpus": 2.0, "devices": [0, 1]}]
    assert first["taken"]
    second = told.ask("pick", job="b", request=add, take=True)
    assert (second["parts"], second["taken"], second["reason"]) == ([], False, "does not fit now")
    assert told.ask("status")["waiting"] == 1  # it is registered, and waits
    told.told(job="a", do="end")
    assert told.ask("pick", job="b")["parts"] == first["parts"]
    assert not told.ask("pick", job="b")["taken"]  # asking takes nothing


def test_a_question_without_a_name_leaves_nothing_behind(told):
    before = told.ask("snapshot", now=5.0)
    assert told.ask("pick", request={"gpus": 3})["parts"][0]["gpus"] == 3
    assert told.ask("pick", request={"gpus": 30})["reason"] == "does not fit now"
    assert told.ask("snapshot") == before


@pytest.mark.parametrize("placement", ["fcfs/first", "fcfs/best", "fcfs/fewest", "learned:hosts"])
def test_a_pick_is_what_the_scheduler_would_do_with_the_job_alone(placement):
    service = Told(placement)
    service.ask("register", cluster=HOSTS, now=0.0)
    for k in range(12):
        request = {"gpus": k % 3, "cpus": 1 + k % 5, "memory": 4.0 + 7 * (k % 4), "estimate": 60}
        service.told(job=str(k), do="add", **request)
        answer = service.ask("decide", now=float(k))
        picked = service.ask("pick", job=str(k), take=True)
        assert [each["parts"] for each in answer["decisions"]] == [picked["parts"]] * picked["taken"]
        if k % 3 == 2 or not picked["taken"]:
            service.told(job=str(k - 2), do="end")
            service.told(job=str(k), do="end")


def test_hosts_that_are_down_and_gpus_that_are_off_take_nothing(told):
    told.told(host="n0", do="down")
    told.told(host="n1", do="up", off=[0, 2])
    assert told.ask("pick", request={"gpus": 2, "gpu_type": "a100"})["parts"] == [{"node": "n1", "gpus": 2.0, "devices": [1, 3]}]
    assert told.ask("pick", request={"gpus": 3})["parts"] == []
    told.told(host="n0", do="up")
    assert told.ask("pick", request={"gpus": 3})["parts"][0]["node"] == "n0"


def test_a_stopped_job_waits_again(told):
    told.ask("pick", job="a", request={"gpus": 4}, take=True, now=10.0)
    told.ask("update", now=110.0, changes=[{"job": "a", "do": "stop", "done": 60}])
    s = told.desk.site.snapshot()
    live = s.live[0]
    assert (live["running"], live["ran"], live["done"], live["attained"], live["preemptions"]) == (False, 100.0, 60.0, 400.0, 1)
    assert s.free_gpus().tolist() == [4, 4, 2]
    assert told.ask("order")["order"] == ["a"]


def test_some_jobs_are_put_in_order(told):
    for name, hours in (("long", 9), ("short", 1), ("middle", 3)):
        told.told(job=name, do="add", gpus=1, estimate=f"{hours}h")
    assert told.ask("order")["order"] == ["short", "middle", "long"]
    assert told.ask("order", jobs=["long", "middle"])["order"] == ["middle", "long"]


def test_shares_of_a_gpu(told):
    parts = [{"node": "n2", "gpus": 0.5, "devices": [1]}]
    for name in "ab":
        told.told(job=name, do="add", gpus=0.5)
        assert told.told(job=name, do="start", parts=parts)["ok"]
    told.told(job="c", do="add", gpus=0.5)
    assert "does not have that much of one GPU free" in told.told(job="c", do="start", parts=parts)["error"]
    told.told(job="a", do="end")
    assert told.told(job="c", do="start", parts=parts)["ok"]
    assert told.ask("pick", request={"gpus": 2, "gpu_type": "t4"})["parts"] == []


# ── what is refused ──


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"job": "x", "do": "start", "parts": []}, "is not registered"),
        ({"job": "a", "do": "add"}, "is registered already"),
        ({"job": "", "do": "add"}, "job = '' is empty"),
        ({"job": "\0pod", "do": "add"}, "control character"),
        ({"job": "b", "do": "add", "gpus": -1}, "is below 0"),
        ({"job": "b", "do": "add", "gpus": 1.5}, "neither a whole number nor a share"),
        ({"job": "b", "do": "add", "gpus": 0}, "no cpus or memory"),
        ({"job": "b", "do": "add", "gpus": 4, "chunk": 3}, "does not divide"),
        ({"job": "b", "do": "add", "gpu_type": "h100"}, "unknown GPU type"),
        ({"job": "b", "do": "add", "partition": "night"}, "unknown partition"),
        ({"job": "b", "do": "add", "terms": "preemptible=perhaps"}, "perhaps"),
        ({"job": "b", "do": "add", "colour": "red"}, "unknown key 'colour'"),
        ({"job": "a", "do": "dance"}, "unknown change 'dance'"),
        ({"job": "a", "do": "start", "parts": []}, "do not add up to 2 GPUs"),
        ({"job": "a", "do": "start", "parts": [{"node": "n0", "gpus": 1}]}, "do not add up to 2 GPUs"),
        ({"job": "a", "do": "start", "parts": [{"node": "n9", "gpus": 2}]}, "is not registered"),
        ({"job": "a", "do": "start", "parts": [{"node": "n0", "gpus": 1}, {"node": "n0", "gpus": 1}]}, "two parts"),
        ({"job": "a", "do": "start", "parts": [{"node": "n0", "gpus": 2, "devices": [0, 0]}]}, "are not 2 free ones"),
        ({"job": "a", "do": "start", "parts": [{"node": "n0", "gpus": 2, "devices": [0, 4]}]}, "are not 2 free ones"),
        ({"job": "a", "do": "start", "parts": [{"node": "n0", "gpus": 2, "devices": [-1, 0]}]}, "are not 2 free ones"),
        ({"job": "a", "do": "start", "parts": [{"node": "n1", "gpus": 2, "devices": [0, 1]}]}, "are not 2 free ones"),
        ({"job": "big", "do": "start", "parts": [{"node": "n1", "gpus": 4}]}, "does not have 4 GPUs free"),
        ({"job": "a", "do": "stop"}, "does not run"),
        ({"job": "runs", "do": "start", "parts": [{"node": "n0", "gpus": 1}]}, "runs already"),
        ({"host": "n9", "do": "down"}, "is not registered"),
        ({"host": "n0", "do": "off"}, "unknown change 'off'"),
        ({"host": "n0", "do": "up", "off": [4]}, "that it does not have"),
        ({"host": "n1", "do": "up", "off": [0]}, "a job holds a GPU"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(told, change, why):
    told.told(job="a", do="add", gpus=2)
    told.told(job="big", do="add", gpus=4)
    told.told(job="runs", do="add", gpus=1)
    told.told(job="runs", do="start", parts=[{"node": "n1", "gpus": 1, "devices": [0]}])
    before = told.ask("snapshot", now=9.0)
    try:
        answer = told.told(**change)
    except GpuyardError as error:
        answer = {"error": str(error), "applied": 0}
    assert why in answer["error"]
    assert answer["applied"] == 0
    assert told.ask("snapshot") == before
    assert told.ask("pick", job="a")["parts"]


def test_the_changes_before_a_refused_one_stand(told):
    changes = [{"job": "a", "do": "add"}, {"job": "a", "do": "add"}, {"job": "b", "do": "add"}]
    answer = told.ask("update", changes=changes)
    assert (answer["ok"], answer["applied"]) == (False, 1)
    assert told.ask("status")["waiting"] == 1


def test_time_does_not_go_back(told):
    told.ask("update", now=100.0, changes=[])
    assert told.ask("decide", now=50.0)["now"] == 100.0


def test_another_protocol_is_refused(told):
    assert told.ask("status", protocol=PROTOCOL)["protocol"] == PROTOCOL
    with pytest.raises(GpuyardError, match="which this gpuyard speaks"):
        told.ask("status", protocol=PROTOCOL + 1)


def test_labels_are_bounded():
    site = RegisteredSite(empty_site(load_cluster("2x8:a100")))
    for k in range(MOST_LABELS - 1):
        site.add(str(k), {}, {"user": f"u{k}"})
        site.end(str(k))
    with pytest.raises(GpuyardError, match="more than 10,000 users"):
        site.add("x", {}, {"user": "one more"})
    assert len(site) == 0


def test_random_changes_keep_the_books():
    """However jobs come and go, what is free is what the snapshot says, and the kernels find it sound."""
    rng = np.random.default_rng(5)
    site, decider = RegisteredSite(empty_site(load_cluster("5x8:a100"))), parse_scheduler("fcfs/fewest/skip").begin()
    names = []
    for k in range(600):
        if names and rng.random() < 0.5:
            name = names.pop(int(rng.integers(len(names))))
            site.stop(name, 0.0) if rng.random() < 0.3 and site.snapshot().live["running"][site.row(name)] else site.end(name)
            if name in site:
                names.append(name)
        else:
            gpus = float(rng.choice([0.25, 0.5, 1, 2, 4, 8, 16]))
            site.add(str(k), {"gpus": gpus, "chunk": min(gpus, 8) if gpus >= 1 else 1}, {})
            names.append(str(k))
        s = site.snapshot()
        for made in decider.decide(s):
            site.start(site.name(s.rows()[made.job]), [Part(p.node, p.gpus, p.devices) for p in made.parts])
        assert (np.diff(site.snapshot().held["row"]) >= 0).all()
    for name in names:
        site.end(name)
    assert site.snapshot().free_gpus().tolist() == [8] * 5


# ── who watches ──


def test_health_and_metrics_say_what_was_done(remote):
    before = remote.ask("health")["requests"]
    remote.ask("register", cluster=HOSTS)
    remote.ask("pick", request={"gpus": 1})
    remote.ask("pick", job="nobody")
    health = remote.ask("health")
    assert (health["requests"] - before, health["hosts"], health["waiting"]) == (4, 3, 0)
    assert health["memory"] > 1e7
    connection = http.client.HTTPConnection("127.0.0.1", remote.port)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {remote.token}"})
    found = connection.getresponse()
    text = found.read().decode()
    connection.close()
    assert found.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert int(values['gpuyard_requests_total{verb="pick"}']) >= 2
    assert int(values["gpuyard_requests_refused_total"]) >= 1
    assert values["gpuyard_hosts"] == "3"
    assert int(values['gpuyard_request_seconds_bucket{le="+Inf"}']) == int(values["gpuyard_request_seconds_count"])


def test_over_a_socket_metrics_are_a_text(local):
    assert "# TYPE gpuyard_decisions_total counter" in local.ask("metrics")["text"]
