"""The reference page of the metrics, made from the registry: `python docs/pages/metrics.py > docs/reference/metrics.md`."""

from __future__ import annotations

import sys
from dataclasses import fields

from gpuyard.metrics import METRICS, Metric

INTRODUCTION = """\
# Metrics

Made by `python docs/pages/metrics.py`; do not edit.

Name the metrics you want: `measure(result, ["wait", "wait.p95", "utilization"])`. What follows the dot reduces one value per job or per
node to a number: `mean` (also when nothing follows), `p50`, `p95`, `p99`, `max`, `min`, `std`, `sum`.
Percentiles interpolate linearly between the two nearest values; `std` divides by n. `measure_by(result, names, by="priority")`
gives the same by priority, user, partition or job class.

## Which jobs count

No job is left out silently. Every job is in exactly one of four groups, whose sizes (`counts(result)`) belong in every table:

- **done**: ended after all its work.
- **killed**: stopped for good at its walltime. It counts with its end; where a formula has the runtime, with the time it ran, if that
  is less.
- **rejected**: refused at submit, because it fits nowhere even when the cluster is empty. It has no start and no end, so metrics of
  times and ratios leave it out; in `deadline_met` it has missed its deadline. Which jobs are rejected does not depend on the scheduler.
- **unfinished**: not ended when the run was over. If accepted, it counts with its time until the **horizon**, the last instant about
  which the run says anything, as if it had started or ended there. That is a lower bound, but no scheduler looks better because of
  the jobs that it left behind. Jobs that were not submitted before a run was stopped early only count in `unfinished`, `completed`,
  `killed` and `rejected`.

`runtime` is the job's hidden work in seconds on the reference GPU (speed 1), whatever device it ran on. Shares of time run from
the first submit to the last end; `utilization`, `throughput` and `energy` only to the last submit, because after it the longest job decides
more than the scheduler. Over the whole run they are `utilization_drained`, `throughput_drained` and `energy_drained`.

A value that is not defined (*nan when* below) is nan, never 0 and never an error: no jobs, all rejected, no time passed.

## All metrics

"""

CONTRIBUTE = """\
## Write your own

```python
from gpuyard.metrics import metric


@metric("stretch", title="stretch", unit="1", better="lower", formula="(end − submit) / estimate")
def stretch(result):
    \"\"\"Turnaround over the estimate.\"\"\"
    return (result.table["end"] - result.workload.jobs.submit) / result.workload.jobs.estimate
```

It returns one value per job (`kind="job"`, nan where it does not apply), per node (`kind="node"`) or per run (`kind="run"`, a float).
"""


def _summary(each: Metric) -> str:
    return f"| [`{each.name}`](#{each.name}) | {each.title} | {each.unit} | {each.better} | {each.kind} |"


def _section(each: Metric) -> str:
    facts = {
        "unit": each.unit,
        "better": each.better,
        "one value per": each.kind,
        "formula": f"`{each.formula}`",
        "jobs": each.covers,
        "nan when": each.missing,
        "by group": "yes" if each.kind == "job" or each.grouped else "no, it describes the whole cluster",
        "reproducible": "" if each.reproducible else "no, a wall-clock figure",
        "parameters": ", ".join(f"`{field.name}={field.default:g}`" for field in fields(each.parameters)) if each.parameters else "",
        "source": each.source,
    }
    lines = "\n".join(f"- {fact}: {text}" for fact, text in facts.items() if text)
    return f"### {each.name}\n\n**{each.title[:1].upper()}{each.title[1:]}.** {each.description}\n\n{lines}\n"


def page() -> str:
    """Return the whole page as Markdown."""
    every = [each for _, each in METRICS.items() if each.function.__module__.startswith("gpuyard.metrics.")]
    table = "\n".join(["| name | is | unit | better | one per |", "|---|---|---|---|---|", *map(_summary, every)])
    return INTRODUCTION + table + "\n\n" + "\n".join(map(_section, every)) + "\n" + CONTRIBUTE


if __name__ == "__main__":
    sys.stdout.write(page())
