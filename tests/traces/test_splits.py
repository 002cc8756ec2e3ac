"""Parts do not overlap, and what overlaps is refused with both sides named."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gpuyard.errors import UnknownNameError
from gpuyard.networks.manifest import TrainingRecord
from gpuyard.traces import load_workload
from gpuyard.traces.changes.transform import apply
from gpuyard.traces.recipes import Workloads
from gpuyard.traces.splits import SEEDS, SPLITS, check_split, has_seen, overlap, uses_of_seeds

FAMILY = "family:shape=base|bursty on 8"


def record(*uses, validation=()):
    return TrainingRecord("ppo", {}, 0, 0, uses, validation)


def test_the_parts_have_no_seed_in_common():
    for a, b in itertools.combinations(SPLITS, 2):
        assert SEEDS[a].stop <= SEEDS[b].start or SEEDS[b].stop <= SEEDS[a].start


@pytest.mark.parametrize(("a", "b"), list(itertools.permutations(SPLITS, 2)))
def test_no_part_of_a_generator_overlaps_another(a, b):
    workloads = Workloads([FAMILY])
    assert overlap(record(*workloads.part(a).uses), workloads.part(b).uses) is None
    assert overlap(record(*workloads.part(a).uses), workloads.part(a).uses) is not None


def test_a_training_seed_is_refused_in_an_evaluation_whatever_the_parameters():
    trained = record(*Workloads([FAMILY]).part("train").uses)
    asked = Workloads(["family:intensity=low on 16"]).part("test", seeds=(42, 1_000_007)).uses
    assert overlap(trained, asked) == (
        "seed 1000007 of family:intensity=low on 16 cannot be evaluated on: "
        "the policy was trained on seeds 1000000–2147483647 of family:shape=base|bursty on 8"
    )
    assert overlap(trained, Workloads(["demo:jobs=30"]).part("test", seeds=(1_000_007,)).uses) is None


def test_a_seed_of_the_validation_is_refused_too():
    trained = record(validation=Workloads([FAMILY]).part("validation").uses)
    found = overlap(trained, Workloads(["family on 8"]).part("test", seeds=(500_003,)).uses)
    assert found is not None
    assert "was validated on seeds 500000–999999" in found


def test_times_of_the_same_log_are_refused_under_another_name(tmp_path):
    text = "".join(f"{k} {k * 100} 0 50 1 -1 -1 1 100 -1 1 1 1 -1 1 1 -1 -1\n" for k in range(1, 400))
    one, copy, other = tmp_path / "one.swf", tmp_path / "copy.swf", tmp_path / "other.swf"
    one.write_text(text)
    copy.write_text(text)
    other.write_text(text.replace(" 50 1 ", " 51 1 "))
    trained = record(*Workloads([f"{one}[jobs=10; until=0.5] on 8"]).part("train").uses)
    assert overlap(trained, Workloads([f"{copy}[jobs=10; from=0.5] on 8"]).part("test").uses) is None
    found = overlap(trained, Workloads([f"{copy}[jobs=10; from=0.3] on 8"]).part("test").uses)
    assert found is not None
    assert "copy.swf" in found
    assert "one.swf" in found
    assert overlap(trained, Workloads([f"{other}[jobs=10; from=0.3] on 8"]).part("test").uses) is None


def test_jobs_that_a_policy_knows_are_found_in_parts_of_the_log_and_under_changes(tmp_path):
    log = tmp_path / "log.swf"
    log.write_text("".join(f"{k} {k * 100} 0 50 1 -1 -1 1 100 -1 1 1 1 -1 1 1 -1 -1\n" for k in range(1, 400)))
    read = load_workload(str(log))
    trained = record(*Workloads([f"{log}[jobs=10; until=0.5] on 8"]).part("train").uses)
    assert trained.workloads[0].times is not None
    end = int((read.jobs.submit < trained.workloads[0].times[1]).sum())
    assert has_seen(trained, read, read)
    assert has_seen(trained, read, read.take(np.arange(end - 1, len(read))))
    assert not has_seen(trained, read, read.take(np.arange(end, len(read))))
    faster = apply(read, "stretch:0.5")
    assert has_seen(trained, read, faster) and not has_seen(trained, faster, faster)
    assert not has_seen(record(*Workloads([FAMILY]).part("train").uses), read, read)


def test_seeds_become_stretches():
    assert [use.seeds for use in uses_of_seeds("demo", range(5, 9))] == [(5, 8)]
    assert [use.seeds for use in uses_of_seeds("demo", [7, 3, 4, 4])] == [(3, 4), (7, 7)]


def test_an_unknown_part():
    assert check_split("test") == "test"
    with pytest.raises(UnknownNameError, match="did you mean 'validation'"):
        check_split("validaton")
