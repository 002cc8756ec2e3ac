"""The pause between two cycles: who has news ends it, but not more often than Slurm can be asked, and not after an error."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from gpuyard.live.deployment import running
from gpuyard.live.deployment.running import GATHER, LOOK, Pause


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that stands still but for sleeps; what is due then happens."""
    made = SimpleNamespace(now=100.0, due={})

    def sleep(seconds):
        made.now += seconds
        for at in [at for at in made.due if at <= made.now]:
            made.due.pop(at)()

    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: made.now, sleep=sleep))
    return made


@pytest.fixture
def wake(tmp_path):
    (tmp_path / "wake").touch()
    return tmp_path / "wake"


def touch(path):
    os.utime(path, ns=(path.stat().st_mtime_ns + 1,) * 2)


@pytest.mark.parametrize("path", [None, "nowhere"])
def test_without_news_it_takes_its_time(clock, tmp_path, path):
    pause = Pause(tmp_path / path if path else None)
    pause.begin()
    pause.rest(10.0, spent=0.1)
    assert clock.now == pytest.approx(110.0)
    pause.rest(-1.0, spent=0.1)
    assert clock.now == pytest.approx(110.0)


def test_news_ends_it_and_is_gathered_for_a_moment(clock, wake):
    pause = Pause(wake)
    pause.begin()
    clock.due[103.0] = lambda: touch(wake)
    pause.rest(10.0, spent=0.1)
    assert clock.now == pytest.approx(103.0 + GATHER, abs=2 * LOOK)
    pause.begin()
    pause.rest(10.0, spent=0.1)
    assert clock.now == pytest.approx(113.0 + GATHER, abs=2 * LOOK)  # the news is seen once


def test_news_during_a_cycle_is_no_secret_to_the_next_one_but_slurm_is_asked_a_fifth_of_the_time_at_most(clock, wake):
    pause = Pause(wake)
    pause.begin()
    touch(wake)
    pause.rest(10.0, spent=0.5)
    assert clock.now == pytest.approx(100.0 + 4 * 0.5 + GATHER, abs=2 * LOOK)


def test_after_an_error_nobody_hurries(clock, wake):
    pause = Pause(wake)
    pause.begin()
    touch(wake)
    pause.rest(10.0, spent=0.1, hurried=False)
    assert clock.now == pytest.approx(110.0)
