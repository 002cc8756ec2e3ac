"""Parse the text of a recipe; nothing is read yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gpuyard.errors import UsageError
from gpuyard.model.cluster import Cluster
from gpuyard.model.units import parse_count, shorten
from gpuyard.model.workload import Workload
from gpuyard.registry import unknown_name
from gpuyard.traces.changes.transform import check_transform
from gpuyard.traces.recipes.reading import Reading

MOST_WEIGHT = 1000
LONGEST = 10_000  # characters of a text; a checkpoint may bring its own
_TEXT = re.compile(r"(?:(?P<weight>[0-9]{1,9})\*)?(?P<base>[^\[\]]+?)(?:\[(?P<options>[^\[\]]*)\])?(?:\s+on\s+(?P<cluster>\S.*))?")


@dataclass(frozen=True)
class Recipe:
    """A parsed text, before anything is read."""

    base: str
    weight: int = 1
    jobs: int | None = None  # 0: all
    begin: str = ""
    until: str = ""
    apply: tuple[str, ...] = ()
    each: tuple[str, ...] = ()  # changes of each window, with its number as seed
    estimate: str = ""
    reader: str | None = None
    cluster: str = ""

    @property
    def text(self) -> str:
        """Write the recipe as text, without the weight."""
        given = {
            "jobs": "all" if self.jobs == 0 else self.jobs or "", "from": self.begin, "until": self.until, "apply": "+".join(self.apply),
            "each": "+".join(self.each), "estimate": self.estimate, "reader": self.reader or "",
        }  # fmt: skip
        options = "; ".join(f"{name}={value}" for name, value in given.items() if value)
        return self.base + (f"[{options}]" if options else "") + (f" on {self.cluster}" if self.cluster else "")

    @property
    def is_generator(self) -> bool:
        return self.reading.is_generator(self.base)

    @property
    def reading(self) -> Reading:
        """Return how the workload is read."""
        return Reading(self.reader, apply=self.apply)

    def windowed(self, workload: Workload, cluster: Cluster, number: int) -> tuple[Workload, Cluster]:
        """Make the changes of a window and its cluster, all of them: those of `apply` have only changed the workload."""
        own = Reading(apply=self.each)
        workload = own.changed(workload, number)
        return workload, own.changed_cluster(self.reading.changed_cluster(cluster, workload, number), workload, number)


def parse_recipe(text: str, cluster: str = "") -> Recipe:
    """Parse a text; `cluster` is for those that name none."""
    match = _TEXT.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if match is None:
        raise UsageError(f"workload {shorten(text)} is not [WEIGHT*]WORKLOAD[OPTIONS][ on CLUSTER]", hint="e.g. log.swf[jobs=256] on 256")
    weight = int(match["weight"] or 1)
    if not 1 <= weight <= MOST_WEIGHT:
        raise UsageError(f"workload {shorten(text)}: the weight {weight} does not lie in 1..{MOST_WEIGHT}")
    made = Recipe(match["base"], weight, cluster=(match["cluster"] or cluster).strip())
    for part in filter(None, (part.strip() for part in (match["options"] or "").split(";"))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in _OPTIONS:
            raise unknown_name(f"option of workload {shorten(text)}:", name, list(_OPTIONS))
        if not equals or not value:
            raise UsageError(f"workload {shorten(text)}: {part!r} is not NAME=VALUE")
        made = _OPTIONS[name](made, value)
    if made.is_generator and (made.begin or made.until):
        raise UsageError(f"workload {shorten(text)}: from and until are for traces", hint="the parts of a generator differ by seed")
    return made


def with_jobs(recipe: Recipe, value: str) -> Recipe:
    """Return the recipe with windows of so many jobs; `all`: without windows."""
    jobs = 0 if value == "all" else parse_count(value)
    if jobs < 1 and value != "all":
        raise UsageError(f"workload {shorten(recipe.base)}: jobs={value}: at least 1, or all")
    return replace(recipe, jobs=jobs)


def _changes(value: str) -> tuple[str, ...]:
    texts = tuple(text.strip() for text in value.split("+"))
    for text in texts:
        check_transform(text)
    return texts


_OPTIONS: Mapping[str, Callable[[Recipe, str], Recipe]] = {
    "jobs": with_jobs,
    "from": lambda recipe, value: replace(recipe, begin=value),
    "until": lambda recipe, value: replace(recipe, until=value),
    "apply": lambda recipe, value: replace(recipe, apply=_changes(value)),
    "each": lambda recipe, value: replace(recipe, each=_changes(value)),
    "estimate": lambda recipe, value: replace(recipe, estimate=value),
    "reader": lambda recipe, value: replace(recipe, reader=value),
}
