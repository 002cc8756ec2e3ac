"""What is learned of run times is kept, loads back equal, and damage loses no more than that."""

from __future__ import annotations

import json
import random

from hypothesis import given
from hypothesis import strategies as st
from tests.support.mutations import mutated

from gpuyard.live.estimator import LAST, HistoryEstimator, keep, recalled

ENDED = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["train", "eval"]), st.floats(0, 1e6)), max_size=60)


@given(ENDED)
def test_it_loads_back_equal(ended):
    made = HistoryEstimator()
    for user, kind, runtime in ended:
        made.observe(user, kind, runtime)
    again = HistoryEstimator.of_data(json.loads(json.dumps(made.as_data())), "kept")
    assert again.as_data() == made.as_data()
    for user in "abcd":
        assert again.estimate(user, "train", 500.0) == made.estimate(user, "train", 500.0)


def test_damage_is_survived(tmp_path):
    path = tmp_path / "kept"
    assert recalled(path).as_data() == HistoryEstimator().as_data()
    made = HistoryEstimator()
    for k in range(LAST + 5):
        made.observe("ann", "train", 10.0 + k)
    keep(made, path)
    assert recalled(path).as_data() == made.as_data()
    lines, rng = path.read_text().splitlines(), random.Random(2)
    for _ in range(200):
        k = rng.randrange(len(lines))
        path.write_text("\n".join([*lines[:k], mutated([lines[k]], rng), *lines[k + 1 :]]), encoding="utf-8", errors="replace")
        assert recalled(path).estimate("ann", "train").expected > 0
