"""The cluster: nodes, device types, partitions, speeds and outages. It is fixed while jobs come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.site.limits import Limit
from gpuyard.views import Displayed

EPS = 1e-6  # tolerance of every comparison of cpus, memory, GPU shares and quotas
MAX_TYPES = 62  # allowed types of a job are a bit set in an int64
MAX_DEVICES = 64  # per node with device identity; wider nodes are pools
MAX_TOTAL_GPUS = 50_000_000
MAX_TRANSFER_FACTOR = 1e6
MAX_SHARING = 64  # partitions of a cluster in which some share nodes: a node's are a bit set in a uint64


@dataclass(frozen=True)
class GpuType:
    """A device type. `speed` is relative to the reference GPU (1.0) for jobs whose class is not in the speed table."""

    name: str
    speed: float = 1.0
    tflops: float = 1.0  # weight in FLOPS-weighted utilisation
    memory: float = 0.0  # GB on the device; 0: not stated
    idle_watts: float = 0.0
    busy_watts: float = 0.0
    price: float = 0.0  # money per device-hour
    transfer: float = 1.0  # factor on a job's transfer; 0: nothing is moved to such a device


@dataclass(frozen=True)
class Partition:
    """Nodes that some jobs may use, with a limit on the GPUs in use at once."""

    name: str
    quota: float = np.inf
    priority: float = 0.0  # weighed by multifactor priorities, relative to the highest of all partitions
    also: tuple[str, ...] = ()  # other names by which jobs ask for it
    tier: float = 0.0  # among partitions that share nodes, jobs of a higher tier are looked at first


@dataclass(frozen=True)
class Outage:
    """Node `node` loses `gpus` devices (None: all of it) from `start` until `end`, in seconds."""

    node: int
    start: float
    end: float
    gpus: int | None = None


def partition_names(label: str) -> list[str]:
    """Return the names in a label such as `gpu` or `gpu,debug`, each once."""
    return list(dict.fromkeys(name.strip() for name in label.split(",")))


def numbers_in(bits: int) -> list[int]:
    """Return the numbers in a bit set, in order."""
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


def where_several(sets: Array) -> Array | None:
    """Return the bit sets of the partitions of nodes as `Nodes.member_of` has them: None if no node is in several."""
    return sets if (sets & (sets - np.uint64(1))).any() else None


def linked(count: int, groups: Iterable[Sequence[int]]) -> Array:
    """(count,) int32: the lowest number that each is linked with, where all of a group are linked."""
    home = list(range(count))
    for group in groups:
        for number in group[1:]:
            low, high = sorted((home[group[0]], home[number]))
            if low != high:
                home = [low if each == high else each for each in home]
    return np.array(home, np.int32)


def quota_of_sharer(cluster: str, partition: str) -> DataError:
    """Return the error for a quota that would count for a part of a queue only."""
    what = f"cluster {cluster}: partition {partition} has a quota, but shares nodes or jobs with others"
    return DataError(what, hint="a limit on its GPUs does the same: [[limits]] partition, gpus")


@dataclass(frozen=True, eq=False)
class Nodes:
    """Columns over nodes; a node has devices of one type."""

    names: tuple[str, ...]
    gpus: Array  # (nodes,) int32
    gpu_type: Array  # (nodes,) int32 into Cluster.types
    cpus: Array  # (nodes,) cores; inf: not limited
    memory: Array  # (nodes,) GB; inf: not limited
    rack: Array  # (nodes,) int32
    partition: Array  # (nodes,) int32 into Cluster.partitions; the first, where a node is in several
    member_of: Array | None = None  # (nodes,) uint64, bit set of all partitions of each node; None: no node is in several

    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Nodes):
            return NotImplemented
        columns = ("gpus", "gpu_type", "cpus", "memory", "rack", "partition")
        mine, theirs = self.member_of, other.member_of
        if (mine is None or theirs is None) and mine is not theirs:
            return False
        sets_agree = mine is None or theirs is None or np.array_equal(mine, theirs)
        return self.names == other.names and sets_agree and all(np.array_equal(getattr(self, c), getattr(other, c)) for c in columns)

    __hash__ = None  # type: ignore[assignment]

    @property
    def columns(self) -> dict[str, Any]:
        """All columns that there are, by name; without `names`."""
        found = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "names"}
        return {name: column for name, column in found.items() if column is not None}

    def partitions_of(self, node: int) -> list[int]:
        """Return the numbers of the partitions that a node is in, the first one first."""
        first = int(self.partition[node])
        return [first] if self.member_of is None else [first, *(k for k in numbers_in(int(self.member_of[node])) if k != first)]

    def of_partition(self, number: int) -> Array:
        """Return (nodes,) bool: whether a node is in a partition."""
        if self.member_of is None:
            return self.partition == number  # type: ignore[no-any-return]
        return (self.member_of >> np.uint64(number)) & np.uint64(1) == 1  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Cluster(Displayed):
    """Nodes with their types, partitions, speeds and outages.

    `speed[job class][type name]` overrides the type's own speed; `qos[name]` is the priority of a quality of service.
    `span_nodes` and `span_racks` multiply the rate of a gang that spans nodes or racks.
    """

    nodes: Nodes
    types: tuple[GpuType, ...]
    partitions: tuple[Partition, ...] = (Partition("all"),)
    speed: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))
    span_nodes: float = 1.0
    span_racks: float = 1.0
    outages: tuple[Outage, ...] = ()
    name: str = "cluster"
    qos: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    limits: tuple[Limit, ...] = ()
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # what others work out once, by name

    def __post_init__(self) -> None:
        if len(self.nodes) == 0:
            raise DataError(f"cluster {self.name}: no nodes")
        if len(self.types) > MAX_TYPES:
            raise DataError(f"cluster {self.name}: {len(self.types)} GPU types; at most {MAX_TYPES}")
        if int(self.nodes.gpus.astype(np.int64).sum()) > MAX_TOTAL_GPUS:
            raise DataError(f"cluster {self.name}: more than {MAX_TOTAL_GPUS:,} GPUs")
        self._check_nodes()
        self._check_outages()
        self._check_numbers()

    def _check_nodes(self) -> None:
        nodes = self.nodes
        limits = {"gpu_type": len(self.types), "partition": len(self.partitions)}
        for name, limit in limits.items():
            column = getattr(nodes, name)
            if len(column) and not (column.min() >= 0 and column.max() < limit):
                raise DataError(f"cluster {self.name}: a node's {name} is not one of the {limit} that exist")
        for name in ("gpus", "cpus", "memory"):
            if not (getattr(nodes, name) >= 0).all():
                raise DataError(f"cluster {self.name}: a node's {name} is negative or not a number")
        if nodes.member_of is not None:
            self._check_sharing(nodes.member_of)

    def _check_sharing(self, member_of: Array) -> None:
        """Check that bit sets name partitions that exist, and the first of each node; and that a quota has its nodes for itself."""
        count = len(self.partitions)
        if count > MAX_SHARING:
            raise DataError(f"cluster {self.name}: {count} partitions; at most {MAX_SHARING} where some share nodes")
        known = np.uint64((1 << count) - 1)
        own = np.uint64(1) << self.nodes.partition.astype(np.uint64)
        if len(member_of) != len(self.nodes) or (member_of & ~known).any() or (member_of & own == 0).any():
            raise DataError(f"cluster {self.name}: a node's partitions are not among the {count} that exist")
        for number, home in enumerate(self.divisions.tolist()):
            quota = self.partitions[number].quota
            if np.isfinite(quota) and np.count_nonzero(self.divisions == home) > 1:
                raise quota_of_sharer(self.name, self.partitions[number].name)

    def _check_outages(self) -> None:
        for outage in self.outages:
            if not 0 <= outage.node < len(self.nodes):
                raise DataError(f"cluster {self.name}: outage of node {outage.node}; there are {len(self.nodes)} nodes")
            if not 0 <= outage.start < outage.end:
                raise DataError(
                    f"cluster {self.name}: outage of node {outage.node} from {outage.start} to {outage.end} s is not an interval"
                )
            if outage.gpus is not None and outage.gpus < 1:
                raise DataError(f"cluster {self.name}: outage of node {outage.node} takes {outage.gpus} GPUs")

    def _check_numbers(self) -> None:
        for factor, label in ((self.span_nodes, "span_nodes"), (self.span_racks, "span_racks")):
            if not 0 < factor <= 10:
                raise DataError(f"cluster {self.name}: {label} = {factor} is not a factor in (0, 10]")
        speeds = [(f"type {kind.name}: speed", kind.speed) for kind in self.types]
        speeds += [(f"speed of {name} on {kind}", value) for name, row in self.speed.items() for kind, value in row.items()]
        for what, value in speeds:
            if not 0 < value < np.inf:
                raise DataError(f"cluster {self.name}: {what} = {value} is not positive")
        for kind in self.types:
            for name in ("tflops", "memory", "idle_watts", "busy_watts", "price"):
                if not 0 <= getattr(kind, name) < np.inf:
                    raise DataError(f"cluster {self.name}: type {kind.name}: {name} = {getattr(kind, name)} is not a number from 0")
            if not 0 <= kind.transfer <= MAX_TRANSFER_FACTOR:
                raise DataError(f"cluster {self.name}: type {kind.name}: transfer = {kind.transfer} is not a factor in 0..1e6")
        for partition in self.partitions:
            if not partition.quota >= 0:
                raise DataError(f"cluster {self.name}: partition {partition.name}: quota = {partition.quota} is not a number from 0")
        names = [name for partition in self.partitions for name in (partition.name, *partition.also)]
        if len(set(names)) < len(names):
            twin = next(name for name in names if names.count(name) > 1)
            raise DataError(f"cluster {self.name}: two partitions are called {twin!r}")
        priorities = [(f"partition {p.name}: priority", p.priority) for p in self.partitions]
        priorities += [(f"partition {p.name}: tier", p.tier) for p in self.partitions]
        priorities += [(f"QOS {name}: priority", value) for name, value in self.qos.items()]
        for what, value in priorities:
            if not 0 <= value < np.inf:
                raise DataError(f"cluster {self.name}: {what} = {value} is not a number from 0")

    @property
    def gpus(self) -> int:
        """The number of devices."""
        return int(self.nodes.gpus.sum())

    @property
    def partition_numbers(self) -> dict[str, int]:
        """The number of the partition that each name means, other names included."""
        return {name: i for i, partition in enumerate(self.partitions) for name in (partition.name, *partition.also)}

    @property
    def divisions(self) -> Array:
        """(partitions,) int32: the lowest number of the partitions that are linked by shared nodes; its own where it shares none."""
        member_of = self.nodes.member_of
        return linked(len(self.partitions), [] if member_of is None else [numbers_in(int(bits)) for bits in np.unique(member_of)])

    def speed_of(self, job_class: str, kind: GpuType) -> float:
        """Return the speed of a device type for a class of jobs."""
        return float(self.speed.get(job_class, {}).get(kind.name, kind.speed))

    @classmethod
    def uniform(cls, nodes: int, gpus: int, kind: str | GpuType = "gpu", *, name: str = "") -> Cluster:
        """Make a cluster of `nodes` equal nodes with `gpus` devices each; cpus and memory are not limited."""
        device = kind if isinstance(kind, GpuType) else GpuType(kind)
        columns = Nodes(
            names=tuple(f"n{i}" for i in range(nodes)),
            gpus=np.full(nodes, gpus, np.int32),
            gpu_type=np.zeros(nodes, np.int32),
            cpus=np.full(nodes, np.inf),
            memory=np.full(nodes, np.inf),
            rack=np.zeros(nodes, np.int32),
            partition=np.zeros(nodes, np.int32),
        )
        return cls(columns, (device,), name=name or f"{nodes}x{gpus}:{device.name}")
