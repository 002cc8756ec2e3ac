"""Photograph every page of the dashboard, on a desk and on a phone, light and dark.

    python benchmarks/dashboard_pictures.py --out FOLDER      # some three minutes

A real node with eight made-up GPUs, whose jobs are `sleep`; a small experiment, run twice; a training; a comparison. `screenshots.py` keeps
a few of the pictures for the guide.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from dashboard import EXPERIMENT, Served
from gpuyard.experiments.design.spec import parse_experiment
from gpuyard.experiments.running.runner import backend_of, run
from pictures import opened

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.nodes import TriedNode, clear

GPUS, JOBS, LOOKING = 8, 60, 75.0  # devices, jobs, s that the node works before the pictures
NAMES = ("llama-8b-sft", "vit-b16", "resnet-sweep", "eval-mmlu", "diffusion-xl", "whisper-ft", "rlhf-ppo", "embed-index")
SIZES = {"desk": (1280, 900), "phone": (390, 844)}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
COMPARED = {
    "workload": "demo",
    "cluster": "16x8:a100",
    "seeds": 5,
    "schedulers": ["fcfs/fewest/easy", "sjf/fewest/easy", "saf/fewest/easy"],
}


@contextmanager
def working(folder: Path) -> Iterator[None]:
    """Run a node whose GPUs are busy when a job holds them, according to readings that are made up."""
    folder.mkdir()
    draw, stop = random.Random(3), threading.Event()
    _write(folder / "gpus.json", set(), draw)
    made = TriedNode(folder)
    made.start(gpus=str(folder / "gpus.json"), scheduler="sjf/fewest/easy")
    for _ in range(2):
        made.submit("true", name="warm-up", gpus=float(GPUS), estimate=1.0)
    made.await_scheduler()
    for k in range(JOBS):
        gpus, estimate = draw.choice([1.0, 1.0, 1.0, 2.0, 2.0, 4.0]), draw.choice([10.0, 20.0, 30.0, 60.0])
        made.submit("sleep", str(draw.choice([8, 15, 25, 40, 60])), name=f"{draw.choice(NAMES)}-{k}", gpus=gpus, estimate=estimate)

    def measure() -> None:
        from gpuyard.live.node.client import NodeClient

        with NodeClient(folder) as client:
            while not stop.wait(0.2):
                _write(folder / "gpus.json", {each["uuid"] for each in client.call("status")["devices"] if each["jobs"]}, draw)

    reading = threading.Thread(target=measure, daemon=True)
    reading.start()
    try:
        yield
    finally:
        stop.set()
        reading.join(5.0)
        clear(folder)
        made.close()


def _write(path: Path, busy: set[str], draw: random.Random) -> None:
    readings = []
    for k in range(GPUS):
        use = min(max(draw.gauss(0.86 if f"GPU-{k}" in busy else 0.01, 0.05), 0.0), 1.0)
        free = 80.0 - (60.0 + 4.0 * draw.random() if f"GPU-{k}" in busy else 0.5)
        readings.append({"index": k, "uuid": f"GPU-{k}", "name": "NVIDIA H100", "memory": 80.0, "free": free, "utilisation": use,
                         "watts": 110.0 + 520.0 * use, "celsius": 34.0 + 38.0 * use})  # fmt: skip
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps(readings))
    fresh.replace(path)


def study(folder: Path) -> None:
    """Run a small experiment twice, and a short training."""
    for name, seeds in (("first", "0-4"), ("second", "5-9")):
        text = EXPERIMENT.replace("0-4", seeds).replace("Who waits?", f"Who waits? The {name} five seeds")
        run(parse_experiment(text, f"{name}.toml"), folder / name, backend_of("local", 1))
    gpuyard = str(Path(sys.executable).with_name("gpuyard"))
    asked = [
        "train",
        "PickJob",
        "--learner",
        "evolution",
        "--workload",
        "family:shape=bursty,gpus=8 on 8",
        "--steps",
        "300k",
        "--envs",
        "16",
    ]
    command = [gpuyard, *asked, "--out", str(folder / "training")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"JAX_PLATFORMS": "cpu"})


def compared(served: Served) -> str:
    """Make a comparison, and return its page."""
    headers = {"content-type": "application/json", "x-gpuyard": "1"}
    request = urllib.request.Request(f"{served.address}/api/comparisons", json.dumps(COMPARED).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        number = json.load(answer)["number"]
    while (state := served.get(f"/api/comparisons/{number}")["state"]) != "done":
        if state in ("failed", "cancelled"):
            raise SystemExit(f"the comparison {state}")
        time.sleep(0.5)
    return f"/compare?number={number}"


def paths_of(served: Served) -> Mapping[str, str]:
    """Return name → path of every page."""
    one, two = (each["name"] for each in served.get("/api/results")["experiments"])
    (training,) = (each["name"] for each in served.get("/api/training")["trainings"])
    return {
        "live": "/", "results": "/results", "result": f"/results?show={one}",
        "pair": f"/results?show={one}&show={two}",
        "trainings": "/training",
        "training": f"/training?show={training}", "compare": "/compare", "compared": compared(served),
    }  # fmt: skip


def photograph(served: Served, path: str, file: Path, size: str, scheme: Literal["light", "dark"], *, whole: bool = True) -> None:
    """Keep a page, whole or its first screen."""
    with opened("about:blank", *SIZES[size], scheme) as (page, _):
        page.goto(f"{served.address}{path}")
        page.wait_for_selector(".card")
        page.wait_for_timeout(2500)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            raise SystemExit(f"{path} is wider than a {size}")
        page.screenshot(path=file, full_page=whole)


@contextmanager
def shown() -> Iterator[Served]:
    """Serve all that there is to see."""
    with tempfile.TemporaryDirectory() as place:
        study(Path(place) / "results")
        with working(Path(place) / "node"):
            served = Served("--folder", str(Path(place) / "node"), "--results", str(Path(place) / "results"))
            try:
                time.sleep(LOOKING)
                yield served
            finally:
                served.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with shown() as served:
        for name, path in paths_of(served).items():
            for size in SIZES:
                for scheme in SCHEMES:
                    photograph(served, path, out / f"{name}-{size}-{scheme}.png", size, scheme)
                    print(f"{name}-{size}-{scheme}.png", flush=True)


if __name__ == "__main__":
    main()
