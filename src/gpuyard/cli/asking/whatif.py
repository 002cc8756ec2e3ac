"""`gpuyard whatif`: the same jobs on another site."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.common import inputs, options
from gpuyard.cli.common.output import Format, Output, Table, emit, progress_bar

if TYPE_CHECKING:
    from gpuyard.experiments.questions.whatif import Consequences
    from gpuyard.model.cluster import Cluster
    from gpuyard.model.workload import Workload

SchedulerAsked = Annotated[str, typer.Option(metavar="S", help="What the site runs: ordering/placement/backfill, or a learned one.")]
ClusterAsked = Annotated[str | None, typer.Option(metavar="C", help="What the log ran on; guessed unless given.")]
EstimateAsked = Annotated[str | None, typer.Option(metavar="SOURCE", help="requested, exact, noisy:0.3, rolling …")]
SeedAsked = Annotated[int, typer.Option(metavar="K", help="Seed of a generator.")]
TODAY = "fcfs/fewest/easy"


@options.grouped()
def whatif(
    workload: Annotated[str, typer.Argument(help="A log (sacct.txt, log.swf.gz, jobs.csv) or a generator.", show_default=False)],
    *,
    change: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:PARAMETER=VALUE", help="nodes:add=4, merge, demand:1.2 …; repeatable, `A + B` for both at once."),
    ] = None,
    cluster: ClusterAsked = None, scheduler: SchedulerAsked = TODAY, estimate: EstimateAsked = None, seed: SeedAsked = 0,
    rules: inputs.Rules, reading: inputs.Reading, how: options.FormatOption = Format.table, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Say what the same jobs would get on another site: more or fewer nodes, other devices, partitions merged or split, other demand.

    Every change is simulated beside the site as it is, with the same scheduler; differences are taken job by job, with 95 % intervals by
    blocks of time. Without --change: a tenth more and less of everything, a node more and less, partitions merged, a fifth more and
    less demand. `gpuyard list changes` names all changes.
    """
    from gpuyard.experiments.questions.sites import check_change
    from gpuyard.experiments.questions.whatif import usual_changes
    from gpuyard.experiments.questions.whatif import whatif as asked

    for text in change or ():
        check_change(text)
    jobs, machine = site_of(workload, cluster, scheduler, estimate, seed, reading)
    texts = tuple(dict.fromkeys(change or ())) or usual_changes(machine)
    with progress_bar("simulating", len(texts) + 1) as progress:
        found = asked(jobs, machine, texts, scheduler=scheduler, rules=rules, progress=progress)
    emit(_described(found, jobs), how)


def site_of(
    text: str, cluster: str | None, scheduler: str, estimate: str | None, seed: int, reading: inputs.Reading
) -> tuple[Workload, Cluster]:
    """Read the jobs, and the cluster that they ran on or that was asked for."""
    from gpuyard.traces import with_estimate

    inputs.check_names(
        workloads=[text], clusters=[cluster] if cluster else (), schedulers=[scheduler], estimates=[estimate] if estimate else (),
        reading=reading,
    )  # fmt: skip
    first = reading.read(text, inputs.check_seed(seed))
    (machine,), _ = inputs.clusters_for(first, [cluster] if cluster else None, generated=reading.is_generator(text))
    jobs = reading.changed(first, seed)
    machine = reading.changed_cluster(machine, jobs, seed)
    if cluster:
        inputs.check_partitions(jobs, [machine])
    return (with_estimate(jobs, estimate, seed) if estimate else jobs), machine


def _described(found: Consequences, workload: Workload) -> Output:
    from gpuyard.experiments.judging.answering.names import duration
    from gpuyard.experiments.judging.answering.plain import share_cell
    from gpuyard.experiments.judging.answering.provenance import device_of
    from gpuyard.experiments.questions.whatif import numbers_of

    rows = []
    for name, service, share in [
        ("as it is", found.present, ""),
        *((f"{each.words}\n{each.change}", each.after, share_cell(each.share, "wait")) for each in found.changes),
    ]:
        rejected = f"{service.rejected:,}" if service.rejected else "–"
        waits = (duration(value) for value in (service.mean, service.percentile(99), service.longest))
        rows.append([name, share, *waits, f"{100 * service.busy:.0f} %", rejected])
    header = ("site", "mean wait\nvs as it is", "mean\nwait", "99 % wait\nless than", "longest\nwait", "busy", "jobs that\ndo not fit")
    machine = found.present.cluster
    place = f"{machine.gpus:,} {device_of(machine)}" if machine.name.isdigit() else machine.name
    title = f"{workload.name} on {place} under {found.name} ({found.scheduler})"
    table = Table(header, rows, title, caption=f"second lines: 95 % interval by blocks of time; {len(workload):,} jobs")
    records = [{"change": "", **numbers_of(found.present)}, *(each.record for each in found.changes)]
    return Output([table], {"scheduler": found.scheduler, "sites": records}, records, found.sentences)
