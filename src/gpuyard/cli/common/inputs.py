"""Turns the texts of options into workloads, clusters and rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuyard.cli.common.output import say
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from gpuyard.model.cluster import Cluster
    from gpuyard.model.rules import Rules as Rules
    from gpuyard.model.site.slurm_conf import SlurmSite
    from gpuyard.model.workload import Workload
    from gpuyard.traces.recipes import Reading as Reading
else:
    Reading = Rules = object  # verbs name them in their signatures; they are loaded when one runs

MAX_SEED = 2**63 - 1
RENAMED = ", with users called user-1, user-2 …; --show-names keeps their names"


def reading_of(
    reader: str | None = None,
    column: Sequence[str] | None = None,
    with_: Sequence[str] | None = None,
    jobs: str | None = None,
    apply: Sequence[str] | None = None,
    preemptible: str | None = None,
) -> Reading:
    """Read the options `--reader`, `--column`, `--with`, `--jobs`, `--apply` and `--preemptible`, which is one more change."""
    from gpuyard.model.units import parse_assignments, parse_count
    from gpuyard.traces.changes.transform import check_transform
    from gpuyard.traces.recipes import Reading

    count = None if jobs is None else parse_count(jobs)
    if count is not None and count < 1:
        raise UsageError(f"--jobs {jobs}: at least 1")
    changes = (*(apply or ()), *([f"preemptible:{_who_may_be_stopped(preemptible)}"] if preemptible is not None else []))
    for text in changes:
        check_transform(text)
    return Reading(reader, parse_assignments(column or (), "--column"), parse_assignments(with_ or (), "--with"), count, changes)


def check_names(
    *, workloads: Sequence[str] = (), clusters: Sequence[str] = (), schedulers: Sequence[str] = (), estimates: Sequence[str] = (),
    metrics: Sequence[str] = (), groups: Sequence[str] = (), reading: Reading | None = None,
) -> tuple[str, ...]:  # fmt: skip
    """Refuse names that are wrong before anything is read, all at once; return the metrics as they are spelt here.

    Metrics may also be given in one text, with commas between them.
    """
    from gpuyard.errors import together
    from gpuyard.metrics import GROUPINGS, resolve
    from gpuyard.model.cluster_file import load_cluster
    from gpuyard.policies import parse_scheduler
    from gpuyard.registry import american, unknown_name
    from gpuyard.traces import is_random

    def group(name: str) -> None:
        if name not in GROUPINGS:
            raise unknown_name("grouping", name, list(GROUPINGS))

    metrics = [name.strip() for text in metrics for name in text.split(",")]
    first = (reading.check, workloads) if reading is not None else (str, ())
    with together() as check:
        for function, texts in (
            first, (load_cluster, clusters), (parse_scheduler, schedulers), (is_random, estimates), (resolve, metrics), (group, groups),
        ):  # fmt: skip
            for text in texts:
                check(function, text)
    return tuple(dict.fromkeys(american(name) for name in metrics))


def clusters_for(workload: Workload, given: Sequence[str] | None, *, generated: bool) -> tuple[tuple[Cluster, ...], str]:
    """Return the clusters that were asked for, or one that goes with the workload, and where it comes from (which is also said)."""
    from gpuyard.model.cluster_file import load_cluster

    if given:
        clusters = tuple(load_cluster(cluster) for cluster in given)
        for name in {kind.name: None for cluster in clusters for kind in cluster.types}:
            _note_unknown_type(name)
        for cluster in clusters:
            _note_speed(cluster)
        return clusters, ""
    if generated and not workload.preset:
        hint = "give --cluster 16x8:a100, 256 (a pool), a preset or a .toml file"
        raise UsageError(f"{workload.name}: no cluster to run it on", hint=hint)
    from gpuyard.traces import guess_cluster

    cluster, origin = guess_cluster(workload)
    say(f"no --cluster: {origin}")
    return (cluster,), origin


def check_partitions(workload: Workload, clusters: Sequence[Cluster]) -> None:
    """Refuse jobs that name a partition which a cluster of several does not have: that is more often a typing error."""
    from gpuyard.errors import DataError
    from gpuyard.model.cluster import partition_names
    from gpuyard.model.units import shorten

    jobs = workload.jobs
    for cluster in clusters:
        known = cluster.partition_numbers
        wrong = [label not in known and any(name not in known for name in partition_names(label)) for label in jobs.partitions]
        rows = [] if len(cluster.partitions) == 1 else [k for k, number in enumerate(jobs.partition.tolist()) if wrong[number]]
        if rows:
            label, others = jobs.partitions[jobs.partition[rows[0]]], f"; {len(rows) - 1:,} more like it" if len(rows) > 1 else ""
            what = f"{workload.name}: job {jobs.id[rows[0]]}: partition {shorten(label)} is not in cluster {cluster.name}{others}"
            raise DataError(what, hint=f"--apply {shorten('only:partition=' + '|'.join(known))} leaves such jobs out")


def pseudonyms(workload: Workload, *, keep: bool) -> dict[str, str]:
    """Return new names for a log's users; empty where names are kept, or nobody has one."""
    return {} if keep else workload.pseudonyms()


def with_users(clusters: Sequence[Cluster], names: Mapping[str, str]) -> tuple[Cluster, ...]:
    """Return the clusters with their limits on users under the users' new names."""
    from dataclasses import replace

    return tuple(
        replace(each, limits=tuple(replace(limit, user=names.get(limit.user, limit.user)) for limit in each.limits))
        if each.limits
        else each
        for each in clusters
    )


@dataclass(frozen=True)
class Measured:
    """Say what clusters are besides their own files: the speed table of --speeds, and the site of --slurm-conf."""

    table: Mapping[str, Mapping[str, float]]
    site: SlurmSite | None = None

    @classmethod
    def of(cls, text: str | None, slurm_conf: Path | None = None) -> Measured:
        from gpuyard.model.speeds import speeds_text

        return cls({} if text is None else speeds_text(text), None if slurm_conf is None else _site_of(slurm_conf))

    def clusters(self, clusters: Sequence[Cluster], workload: Workload) -> tuple[Cluster, ...]:
        """Return the clusters with the measured speeds of their types, under the policy of the site; say where these are useless."""
        from gpuyard.model.speeds import with_speeds

        if self.site is not None:
            clusters = [_under(cluster, self.site) for cluster in clusters]
        if self.table and not set(workload.jobs.classes) & set(self.table):
            say(f"note: --speeds: no job of {workload.name} has a class of the table, e.g. {next(iter(self.table))!r}")
        types = {kind for row in self.table.values() for kind in row}
        for cluster in clusters:
            if self.table and not types & {kind.name for kind in cluster.types}:
                say(f"note: --speeds: the table knows none of the types of {cluster.name}; it knows {', '.join(sorted(types))}")
        return tuple(with_speeds(cluster, self.table) for cluster in clusters)

    def workload(self, workload: Workload, clusters: Sequence[Cluster]) -> Workload:
        """Return the workload with jobs kept off the types on which they do not fit."""
        from gpuyard.model.speeds import fitting

        return fitting(workload, self.table, dict.fromkeys(kind.name for cluster in clusters for kind in cluster.types))


def _site_of(path: Path) -> SlurmSite:
    from gpuyard.files import read_bytes
    from gpuyard.model.site.slurm_conf import parse_slurm_site

    return parse_slurm_site(read_bytes(path, 64_000_000, "the configuration of a Slurm site").decode("utf-8", "replace"), str(path))


def _under(cluster: Cluster, site: SlurmSite) -> Cluster:
    from gpuyard.model.site.slurm_conf import with_slurm_site

    made, notes = with_slurm_site(cluster, site)
    for note in notes:
        say(f"note: --slurm-conf: {note}")
    return made


def _note_unknown_type(name: str) -> None:
    """Warn about an unknown device type: it is allowed, but more often a typing error."""
    from difflib import get_close_matches

    from gpuyard.model.presets import DEVICES

    if name.lower() not in DEVICES and name != "gpu":  # the name of an unspecified device
        near = get_close_matches(name.lower(), list(DEVICES), n=1)
        guess = f" (is it {near[0]!r}?)" if near else ""
        say(f"note: no figures are known for GPU type {name!r}{guess}: where the cluster says nothing, its speed is 1 and its watts are 0")


def _note_speed(cluster: Cluster) -> None:
    """Warn about a cluster of one type whose speed is not 1: it scales every run time, which is rarely meant when a log is replayed."""
    if len(cluster.types) == 1 and cluster.types[0].speed != 1 and not cluster.speed:
        kind = cluster.types[0]
        say(
            f"note: {kind.name} is {kind.speed:.3g} × as fast as the reference GPU, for which run times are meant; a log of such a cluster"
            f" wants speed 1, as {cluster.name.replace(':' + kind.name, ':gpu')!r} has"
        )


def _who_may_be_stopped(text: str) -> str:
    """Return the parameters of the transform for `--preemptible`: a share of all jobs, 0.5 or 50%, or all that have a label, qos=low."""
    return f"share=1,{text}" if "=" in text else f"{share_of('--preemptible', text, '; or who: partition=low, qos=low|free'):g}"


def share_of(option: str, text: str, further: str = "") -> float:
    """Return the share that an option gives: 0.5 or 50%. `further`: what the hint says besides."""
    try:
        share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"{option} {text}: not a share of the jobs", hint=f"e.g. 0.5 or 50%{further}")
    return share


def rules_of(checkpoint: str, restart_cost: str, walltime_kill: bool, checkpoint_cost: str, drain: str) -> Rules:
    """Read the options `--checkpoint`, `--restart-cost`, `--walltime-kill`, `--checkpoint-cost` and `--drain`."""
    from gpuyard.model.rules import Rules
    from gpuyard.model.units import parse_seconds

    return Rules(
        walltime_kill=walltime_kill, checkpoint=parse_seconds(checkpoint), restart_cost=parse_seconds(restart_cost),
        checkpoint_cost=parse_seconds(checkpoint_cost), drain=parse_seconds(drain),
    )  # fmt: skip


def check_seed(seed: int) -> int:
    """Return the seed if every part accepts it."""
    if not 0 <= seed <= MAX_SEED:
        raise UsageError(f"seed {seed} does not lie in 0..2^63 − 1")
    return seed
