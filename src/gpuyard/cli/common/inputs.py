"""Turns the texts of options into workloads, clusters and rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.cli.common.output import say
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.model.cluster import Cluster
    from gpuyard.model.rules import Rules
    from gpuyard.model.workload import Workload

MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class Reading:
    """The way workloads are read: reader, columns, parameters, number of jobs, changes."""

    reader: str | None
    columns: dict[str, str]
    parameters: dict[str, str]
    jobs: int | None
    apply: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        reader: str | None = None,
        column: Sequence[str] | None = None,
        with_: Sequence[str] | None = None,
        jobs: str | None = None,
        apply: Sequence[str] | None = None,
    ) -> Reading:
        """Read the options `--reader`, `--column`, `--with`, `--jobs` and `--apply`."""
        from gpuyard.model.units import parse_assignments, parse_count

        count = None if jobs is None else parse_count(jobs)
        if count is not None and count < 1:
            raise UsageError(f"--jobs {jobs}: at least 1")
        if apply:
            from gpuyard.traces.changes.transform import check_transform

            for text in apply:
                check_transform(text)
        return cls(reader, parse_assignments(column or (), "--column"), parse_assignments(with_ or (), "--with"), count, tuple(apply or ()))

    def load(self, text: str, seed: int) -> Workload:
        """Return the workload that `text` names, after the changes of `--apply`."""
        return self.perturbed(self.read(text, seed), seed)

    def read(self, text: str, seed: int) -> Workload:
        """Return the workload that `text` names, unchanged."""
        from gpuyard.traces import load_workload

        self._refuse_foreign(text)
        given: dict[str, Any] = dict(self.parameters)
        if self.columns:
            given["columns"] = self.columns
        workload = load_workload(text, seed, reader=self.reader, **given)
        return workload if self.jobs is None else workload.head(self.jobs)

    def perturbed(self, workload: Workload, seed: int) -> Workload:
        """Apply the transforms of workloads among those of `--apply`."""
        from gpuyard.traces import apply_all

        return apply_all(workload, self.apply, seed)

    def dipped(self, cluster: Cluster, workload: Workload, seed: int) -> Cluster:
        """Apply the transforms of clusters among those of `--apply`."""
        from gpuyard.traces import apply_all_to_cluster

        return apply_all_to_cluster(cluster, self.apply, workload, seed)

    def named(self, text: str) -> str:
        """Return the workload's name in tables, with all changes."""
        return "+".join((text, *self.apply))

    def is_random(self) -> bool:
        """Whether the changes differ from seed to seed."""
        from gpuyard.traces.changes.transform import check_transform

        return any(check_transform(text).random for text in self.apply)

    def format_of(self, text: str) -> str:
        """Return the reader of a file, or what else the text names."""
        from gpuyard.traces import DATASETS, fetch, reader_of

        name, _, rest = text.partition(":")
        if self.reader is not None or self.is_generator(text):
            return self.reader or f"generator {name}"
        if name == "dataset":
            return DATASETS[rest].reader or reader_of(fetch(rest)).name
        return reader_of(Path(text).expanduser()).name

    def is_generator(self, text: str) -> bool:
        """Whether the text names a generator, whose workload differs from seed to seed."""
        from gpuyard.traces.recipes import names_generator

        return names_generator(text, self.reader)

    def names_workload(self, text: str) -> bool:
        """Whether the text is a workload even if there is no such file: a generator, a dataset, or the input of a named reader."""
        return self.reader is not None or self.is_generator(text) or text.startswith("dataset:")

    def _refuse_foreign(self, text: str) -> None:
        """Refuse `--with` for parameters that cannot be written as text, such as limits and column tables."""
        from gpuyard.traces import GENERATORS, READERS

        registered = [thing for registry in (READERS, GENERATORS) for _, thing in registry.items()]
        special = {p.name for thing in registered for p in thing.parameters if not p.textual}
        wrong = sorted(special & set(self.parameters))
        if wrong:
            hint = "use --column OURS=THEIRS" if wrong[0] == "columns" else "it is for Python callers"
            raise UsageError(f"--with {wrong[0]}: cannot be set here", hint=hint)
        if self.columns and self.is_generator(text):
            raise UsageError(f"--column: {text} has no columns to name", hint="it is for CSV files")


def clusters_for(workload: Workload, given: Sequence[str] | None, *, generated: bool) -> tuple[Cluster, ...]:
    """Return the clusters that were asked for, or one that goes with the workload (and say so)."""
    from gpuyard.model.cluster_file import load_cluster

    if given:
        clusters = tuple(load_cluster(cluster) for cluster in given)
        for name in {kind.name: None for cluster in clusters for kind in cluster.types}:
            _note_unknown_type(name)
        for cluster in clusters:
            _note_speed(cluster)
        return clusters
    if generated and not workload.preset:
        hint = "give --cluster 16x8:a100, 256 (a pool), a preset or a .toml file"
        raise UsageError(f"{workload.name}: no cluster to run it on", hint=hint)
    from gpuyard.traces import guess_cluster

    cluster, origin = guess_cluster(workload)
    say(f"no --cluster: {origin}")
    return (cluster,)


@dataclass(frozen=True)
class Measured:
    """The speed table of --speeds; empty without one."""

    table: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, text: str | None) -> Measured:
        from gpuyard.model.speeds import speeds_text

        return cls({} if text is None else speeds_text(text))

    def clusters(self, clusters: Sequence[Cluster], workload: Workload) -> tuple[Cluster, ...]:
        """Return the clusters with the measured speeds of their types; say where the table is useless."""
        from gpuyard.model.speeds import with_speeds

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


def rules_of(checkpoint: str, restart_cost: str, walltime_kill: bool) -> Rules:
    """Read the options `--checkpoint`, `--restart-cost` and `--walltime-kill`."""
    from gpuyard.model.rules import Rules
    from gpuyard.model.units import parse_seconds

    return Rules(walltime_kill=walltime_kill, checkpoint=parse_seconds(checkpoint), restart_cost=parse_seconds(restart_cost))


def check_seed(seed: int) -> int:
    """Return the seed if every part accepts it."""
    if not 0 <= seed <= MAX_SEED:
        raise UsageError(f"seed {seed} does not lie in 0..2^63 − 1")
    return seed
