"""GPUs are read through a library in the place of the driver's: lost ones, foreign processes, energy, and no GPU at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.fake_nvml import FakeGpu, FakeNvml, compile_fake_nvml

pytest.importorskip("pynvml")

# Answers a line with one reading of all GPUs, or with what a job has used.
READER = """
import dataclasses, json, sys
from gpuyard.live.gpus.nvml import NvmlLibrary
from gpuyard.live.gpus.ledger import Ledger
library, ledger = NvmlLibrary(), Ledger()
print(json.dumps({"found": library.open(), "problem": library.problem}), flush=True)
for line in sys.stdin:
    verb, now, *rest = json.loads(line)
    if verb == "read":
        readings = library.read()
        ledger.took(now, readings, [None if each.lost else library.joules(k) for k, each in enumerate(readings)])
        answer = [dataclasses.asdict(each) for each in readings]
    elif verb == "began":
        answer = ledger.began(now, *rest)
    else:
        answer = dataclasses.asdict(ledger.ended(now, *rest))
    print(json.dumps(answer), flush=True)
"""


class Reader:
    """A process that reads the fake GPUs."""

    def __init__(self, fake: FakeNvml) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=fake.environment
        )
        self.opened = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, *words: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self._answer()


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    return compile_fake_nvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def reader(fake: FakeNvml) -> Iterator[Reader]:
    fake.show([FakeGpu("GPU-a", joules=1000.0), FakeGpu("GPU-b", total=32_000)])
    made = Reader(fake)
    yield made
    made.process.kill()
    made.process.communicate()


def test_a_reading_holds_what_the_driver_says(reader: Reader, fake: FakeNvml) -> None:
    assert reader.opened == {"found": True, "problem": ""}
    fake.show([FakeGpu("GPU-a", used=4000, utilisation=75, watts=321.5, celsius=66, processes=((77, 4000), (78, 10))), FakeGpu("GPU-b")])
    first, second = reader.ask("read", 0.0)
    assert (first["uuid"], first["name"], first["index"]) == ("GPU-a", "NVIDIA-Test", 0)
    assert first["memory"] == pytest.approx(16_000 * 2**20 / 1e9)
    assert first["free"] == pytest.approx(12_000 * 2**20 / 1e9)
    assert (first["utilisation"], first["watts"], first["celsius"]) == (0.75, 321.5, 66.0)
    assert [each["pid"] for each in first["processes"]] == [77, 78]
    assert first["processes"][0]["memory"] == pytest.approx(4000 * 2**20 / 1e9)
    assert second["processes"] == []


def test_a_lost_gpu_stays_in_the_list_and_is_trusted_again_after_ten_readings(reader: Reader, fake: FakeNvml) -> None:
    good, lost = [FakeGpu("GPU-a"), FakeGpu("GPU-b")], [FakeGpu("GPU-a"), FakeGpu("GPU-b", state=15)]
    assert [each["lost"] for each in reader.ask("read", 0.0)] == ["", ""]
    fake.show(lost)
    first, second = reader.ask("read", 1.0)
    assert (first["lost"], second["lost"], second["uuid"], second["free"]) == ("", "GPU is lost", "GPU-b", 0.0)
    fake.show(good)
    after = [reader.ask("read", 2.0 + k)[1]["lost"] for k in range(10)]
    assert all(after[:9])
    assert after[9] == ""


def test_the_driver_may_go_away(reader: Reader, fake: FakeNvml) -> None:
    fake.state.unlink()
    assert [each["lost"] for each in reader.ask("read", 0.0)] == ["Driver Not Loaded"] * 2


def test_energy_is_that_of_the_counter_divided_among_the_jobs(reader: Reader, fake: FakeNvml) -> None:
    def counted(now: float, joules: float) -> None:
        fake.show([FakeGpu("GPU-a", joules=joules, watts=100.0, utilisation=50, used=1000), FakeGpu("GPU-b", watts=10.0)])
        reader.ask("read", now)

    counted(0.0, 1000.0)
    reader.ask("began", 0.0, 1, ["GPU-a"])
    counted(1.0, 1150.0)  # 150 J in a second, though the power said 100
    reader.ask("began", 1.0, 2, ["GPU-a"])
    reader.ask("began", 1.0, 3, ["GPU-b"])
    counted(2.0, 1250.0)
    one, two, three = (reader.ask("ended", 2.5, job) for job in (1, 2, 3))
    assert one["joules"] == pytest.approx(150 + 50 + 25)
    assert two["joules"] == pytest.approx(50 + 25)
    assert three["joules"] == pytest.approx(15)  # no counter: power times time
    assert one["utilisation"] == pytest.approx(0.5)
    assert one["memory"] == pytest.approx(1000 * 2**20 / 1e9)
    assert reader.ask("ended", 3.0, 1)["joules"] == 0


def test_a_counter_that_begins_again_costs_no_job_anything(reader: Reader, fake: FakeNvml) -> None:
    reader.ask("read", 0.0)
    reader.ask("began", 0.0, 1, ["GPU-a"])
    fake.show([FakeGpu("GPU-a", joules=3.0, watts=100.0), FakeGpu("GPU-b")])
    reader.ask("read", 0.5)
    assert reader.ask("ended", 1.0, 1)["joules"] == pytest.approx(100.0)


def test_without_gpus_it_says_why(fake: FakeNvml, tmp_path: Path) -> None:
    fake.show([])
    none = Reader(fake)
    assert none.opened == {"found": False, "problem": "the driver knows no GPU"}
    missing = FakeNvml(tmp_path)
    absent = Reader(missing)
    assert absent.opened["found"] is False
    assert absent.opened["problem"] == "no driver of NVIDIA is installed"
    for each in (none, absent):
        each.process.kill()
        each.process.communicate()
