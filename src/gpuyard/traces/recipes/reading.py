"""Reads the workload that a text names: for the command line, and for every source of episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuyard.errors import UsageError
from gpuyard.files import user_path
from gpuyard.model.cluster import Cluster
from gpuyard.model.storage import is_saved
from gpuyard.model.workload import Workload
from gpuyard.traces import DATASETS, GENERATORS, READERS, apply_all, apply_all_to_cluster, fetch, load_workload, reader_of
from gpuyard.traces.base import check_workload
from gpuyard.traces.changes.transform import check_transform


@dataclass(frozen=True)
class Reading:
    """The way workloads are read: reader, columns, parameters of the reader, number of jobs, changes."""

    reader: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    jobs: int | None = None  # the first so many; None: all
    apply: tuple[str, ...] = ()

    def load(self, text: str, seed: int = 0) -> Workload:
        """Return the workload that `text` names, after the changes."""
        return self.changed(self.read(text, seed), seed)

    def read(self, text: str, seed: int = 0) -> Workload:
        """Return the workload that `text` names, unchanged."""
        self._refuse_foreign(text)
        given: dict[str, Any] = dict(self.parameters)
        if self.columns:
            given["columns"] = self.columns
        workload = load_workload(text, seed, reader=self.reader, **given)
        return workload if self.jobs is None else workload.head(self.jobs)

    def check(self, text: str) -> None:
        """Refuse a text that names no workload, without reading one."""
        self._refuse_foreign(text)
        check_workload(text, self.reader)

    def changed(self, workload: Workload, seed: int) -> Workload:
        """Apply the changes that concern workloads."""
        return apply_all(workload, self.apply, seed)

    def changed_cluster(self, cluster: Cluster, workload: Workload, seed: int) -> Cluster:
        """Apply the changes that concern clusters."""
        return apply_all_to_cluster(cluster, self.apply, workload, seed)

    def named(self, text: str) -> str:
        """Return the workload's name in tables, with all changes."""
        return "+".join((text, *self.apply))

    def is_random(self) -> bool:
        """Whether the changes differ from seed to seed."""
        return any(check_transform(text).random for text in self.apply)

    def format_of(self, text: str) -> str:
        """Return the reader of a file, or what else the text names."""
        name, _, rest = text.partition(":")
        if self.reader is not None or self.is_generator(text):
            return self.reader or f"generator {name}"
        if name == "dataset":
            return DATASETS[rest].reader or reader_of(fetch(rest)).name
        return "result" if is_saved(user_path(text)) else reader_of(user_path(text)).name

    def is_generator(self, text: str) -> bool:
        """Whether the text names a generator, whose workload differs from seed to seed."""
        return names_generator(text, self.reader)

    def names_workload(self, text: str) -> bool:
        """Whether the text is a workload even if there is no such file: a generator, a dataset, or the input of a named reader."""
        return self.reader is not None or self.is_generator(text) or text.startswith("dataset:")

    def _refuse_foreign(self, text: str) -> None:
        """Refuse `--with` for parameters that cannot be written as text, such as limits and column tables."""
        registered = [thing for registry in (READERS, GENERATORS) for _, thing in registry.items()]
        special = {p.name for thing in registered for p in thing.parameters if not p.textual}
        wrong = sorted(special & set(self.parameters))
        if wrong:
            hint = "use --column OURS=THEIRS" if wrong[0] == "columns" else "it is for Python callers"
            raise UsageError(f"--with {wrong[0]}: cannot be set here", hint=hint)
        if self.columns and self.is_generator(text):
            raise UsageError(f"--column: {text} has no columns to name", hint="it is for CSV files")


def names_generator(base: str, reader: str | None = None) -> bool:
    """Return whether a workload's name is that of a generator, whose workload differs from seed to seed."""
    return reader is None and base.partition(":")[0] in GENERATORS
