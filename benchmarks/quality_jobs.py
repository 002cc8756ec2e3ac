"""How good the job-picking policies are on data they were not trained on, beside orderings that see the same estimates.

    python benchmarks/quality_jobs.py [--only protocol|logs|gpu] [--lublin|--hpc|--gpu CHECKPOINT] [--traces FOLDER]

- protocol: `lublin` on the trace lublin_256 by the rules of RLScheduler (Zhang et al., SC 2020), its ten windows and disjoint ones.
- logs: `hpc` on disjoint windows of 1,024 jobs of SWF logs, requested times: the last 30 % of four whose first 70 % was trained on,
  and one of which nothing was.
- gpu: `gpu` on disjoint windows of 2,048 jobs of the last 30 % of Philly and Helios Venus, arrivals scaled to a load of 256 GPUs.

Each line: the mean over windows of the mean over jobs; then ours − it with a paired 95 % interval over the windows, and on how many ours is
lower.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from gpuyard import Result, Workload, load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.arrays import Array
from gpuyard.compat.rlscheduler.networks import learned_chooser
from gpuyard.compat.rlscheduler.reader import load_rlscheduler
from gpuyard.compat.rlscheduler.rules import RLSCHEDULER_ORDERINGS, rlscheduler
from gpuyard.experiments.judging.statistics import paired_difference
from gpuyard.metrics import measure
from gpuyard.traces import apply_all, guess_cluster, with_estimate

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
LENGTH, GPU_LENGTH = 1024, 2048  # jobs in a window
STARTS = (1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085)  # of the protocol's windows
PUBLISHED_RL = {False: 254.67, True: 58.64}  # by backfilling
ORDERINGS = ("fcfs", "sjf", "saf", "f1", "wfp3", "unicep", "smallest")
TRAINED_LOGS = ("KTH-SP2-1996-2.1-cln", "CTC-SP2-easy-resimulated", "SDSC-SP2-easy-resimulated", "HPC2N-2002-2.1-cln")
OTHER_LOGS = ("SDSC-BLUE-2000-4.2-cln",)
GPU_TRACES = {"Philly": "philly/philly_jobs_vc.csv.gz", "Helios Venus": "helios/helios_venus_gpu_jobs.csv.gz"}
GPUS, TESTED_FROM = 256, 0.7  # share of the span that training and validation had
MOST_WINDOWS = 40  # of a log


def cut(workload: Workload, starts: Iterable[int], length: int = LENGTH) -> list[Workload]:
    """Windows, with the trace's own times."""
    return [workload.take(np.arange(start, start + length)) for start in starts]


def disjoint(workload: Workload, length: int = LENGTH) -> list[Workload]:
    """All that follow one another; of many, MOST_WINDOWS spread evenly."""
    starts = np.arange(0, len(workload) - length + 1, length)
    if len(starts) > MOST_WINDOWS:
        starts = starts[np.linspace(0, len(starts) - 1, MOST_WINDOWS).astype(int)]
    return cut(workload, starts.tolist(), length)


def tested(workload: Workload) -> Workload:
    """What was neither trained nor validated on."""
    submit = workload.jobs.submit
    begin = int(np.searchsorted(submit, submit[0] + TESTED_FROM * (submit[-1] - submit[0])))
    return workload.take(np.arange(begin, len(workload)))


def values(parts: Sequence[Workload], run: Callable[[Workload], Result], metric: str) -> Array:
    return np.array([measure(run(part), [metric])[metric] for part in parts])


def table(title: str, ours: str, found: Mapping[str, Array], published: float | None = None) -> None:
    """Print a table; `found` has the values of every window by name."""
    mine = found[ours]
    print(f"\n{title}, {len(mine)} windows\n{'':<12}{'mean':>11}{'ours − it':>12}  95 % interval (paired){'lower on':>10}")
    for name, each in sorted(found.items(), key=lambda item: float(item[1].mean())):
        if name == ours:
            print(f"{'> ' + name:<12}{mine.mean():>11.2f}")
            continue
        difference = paired_difference(mine, each)
        interval = f"{difference.low:+.2f} … {difference.high:+.2f}"
        print(f"{name:<12}{each.mean():>11.2f}{difference.mean:>+12.2f}  {interval:<22}{int((mine < each).sum()):>7}/{len(mine)}")
    if published is not None:
        print(f"{'published RL':<12}{published:>11.2f}{mine.mean() - published:>+12.2f}")


def protocol(traces: Path, checkpoint: str) -> None:
    """The published protocol, and the same rules on windows that do not overlap."""
    workload = load_rlscheduler(traces / "swf" / "lublin_256.swf.gz")
    network = learned_chooser(checkpoint)
    for title, parts in (("the protocol's windows", cut(workload, STARTS)), ("disjoint windows", disjoint(workload))):
        for backfill in (False, True):

            def run(part: Workload, ordering: object, backfill: bool = backfill) -> Result:
                return rlscheduler(part, GPUS, ordering, backfill=backfill)  # type: ignore[arg-type]

            found = {name: values(parts, lambda part, name=name: run(part, name), "bsld") for name in RLSCHEDULER_ORDERINGS}
            found["lublin"] = values(parts, lambda part: run(part, network), "bsld")
            rules = "their backfilling" if backfill else "no backfilling"
            published = PUBLISHED_RL[backfill] if "protocol" in title else None
            table(f"lublin_256, {title}, {rules}: bounded slowdown", "lublin", found, published)


def engine_tables(title: str, parts: Sequence[Workload], cluster: str, policy: tuple[str, str], backfills: Sequence[str]) -> None:
    """gpuyard's own rules: bounded slowdown and mean wait."""
    ours, checkpoint = policy
    machine = load_cluster(cluster)
    for backfill in backfills:
        schedulers = {name: parse_scheduler(f"{name}/fewest/{backfill}") for name in ORDERINGS}
        schedulers[ours] = parse_scheduler(f"{checkpoint}/fewest/{backfill}")
        runs = {name: [simulate(part, machine, scheduler) for part in parts] for name, scheduler in schedulers.items()}
        for metric in ("bsld", "wait"):
            found = {name: np.array([measure(result, [metric])[metric] for result in each]) for name, each in runs.items()}
            table(f"{title}, backfill {backfill}: {metric}", ours, found)


def logs(traces: Path, checkpoint: str) -> None:
    """Logs of HPC machines, with the times that users asked for; and lublin_256, by gpuyard's own rules."""
    lublin = load_rlscheduler(traces / "swf" / "lublin_256.swf.gz")
    engine_tables("lublin_256, gpuyard's own rules", disjoint(lublin), str(GPUS), ("hpc", checkpoint), ("none", "easy"))
    for name in (*TRAINED_LOGS, *OTHER_LOGS):
        workload = load_workload(str(traces / "swf" / f"{name}.swf.gz"))
        processors = guess_cluster(workload)[0].gpus
        part, title = (tested(workload), ", the last 30 %") if name in TRAINED_LOGS else (workload, "")
        engine_tables(f"{name}{title}, {processors} processors", disjoint(part), str(processors), ("hpc", checkpoint), ("none", "easy"))


def gpu(traces: Path, checkpoint: str, estimate: str, loads: Sequence[float]) -> None:
    """The last 30 % of the two traces; estimates are made on the whole, from the past of each job, before arrivals are scaled."""
    for title, file in GPU_TRACES.items():
        last = tested(with_estimate(load_workload(str(traces / file)), estimate))
        for load in loads:
            parts = disjoint(apply_all(last, (f"load:target={load},gpus={GPUS}",), 0), GPU_LENGTH)
            engine_tables(f"{title}, load {load}, estimates {estimate}", parts, f"{GPUS // 8}x8:gpu", ("gpu", checkpoint), ("none", "easy"))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--lublin", default="learned:lublin")
    arguments.add_argument("--hpc", default="learned:hpc")
    arguments.add_argument("--gpu", default="learned:gpu")
    arguments.add_argument("--traces", type=Path, default=TRACES)
    arguments.add_argument("--only", choices=("protocol", "logs", "gpu"))
    arguments.add_argument("--estimate", default="boosting")
    arguments.add_argument("--loads", type=float, nargs="+", default=[0.9, 1.2])
    given = arguments.parse_args()
    parts: dict[str, Callable[[], None]] = {
        "protocol": lambda: protocol(given.traces, given.lublin),
        "logs": lambda: logs(given.traces, given.hpc),
        "gpu": lambda: gpu(given.traces, given.gpu, given.estimate, given.loads),
    }
    for name, run in parts.items():
        if given.only in (None, name):
            run()


if __name__ == "__main__":
    main()
