"""Draw an environment: which jobs held what in the recent past, which wait, and what may be chosen now."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.envs.opened import OpenDecision
from gpuyard.envs.vector import EngineEnvs
from gpuyard.model.units import format_seconds

COLUMNS = 100  # of a text
LABEL = 9  # columns of a lane's name
MOST_DEVICES = 96  # with a lane each in a picture; with more devices, every node has a lane
MOST_LANES = 24  # the same for a text, which has no more lanes than that
MOST_WAITING = 12  # jobs of the queue that are listed
RECENT = 96  # runs that have ended, and set how far back a picture goes
BLOCKS = " ▁▂▃▄▅▆▇█"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class RunBar(NamedTuple):
    """The part of a run on one node."""

    job: int  # index
    node: int
    gpus: float
    devices: int  # bit set; 0: none by number
    start: float  # s
    end: float  # s; of a run that goes on: now
    expected: float  # s: when it is estimated to end


class Waiting(NamedTuple):
    """A job in the queue."""

    job: int
    gpus: float
    cpus: float
    estimate: float  # s
    wait: float  # s
    choosable: bool


@dataclass(frozen=True)
class EnvView:
    """Everything that a picture of one environment shows."""

    now: float  # s
    since: float  # s
    bars: tuple[RunBar, ...]
    waiting: tuple[Waiting, ...]
    in_queue: int
    running: int
    ended: int
    jobs: int
    busy: float  # share of the devices, or of the cores where there are no devices
    legal: tuple[int, ...]  # actions
    decision: OpenDecision
    active: str  # the scheduler in use, where that is what is chosen
    names: tuple[str, ...]  # of the nodes
    devices: Array  # (nodes,) i4
    use: Callable[[Array], Array]  # (edges,) s → (nodes, edges − 1) share in use

    @classmethod
    def of(cls, envs: EngineEnvs, env: int, schedulers: Sequence[str] = ()) -> EnvView:
        """Look at environment `env`, which must be recorded. `schedulers`: the names of those that are chosen from, if any."""
        workload, cluster = envs.episode(env)
        s = envs.state(env)
        control = s.control[0]
        now = float(control["now"])
        bars = (*_ended(s), *_running(s, now))
        since = _since(s, now)
        nodes = cluster.nodes
        active = int(control["active"])
        return cls(
            now=now, since=since, bars=tuple(bar for bar in bars if bar.end > since or bar.expected > now),
            waiting=_waiting(s, envs.opened.decision), in_queue=int(control["waiting"]), running=int(control["running"]),
            ended=int(control["next_job"]) - int(control["waiting"]) - int(control["running"]), jobs=len(workload),
            busy=_busy(s), legal=tuple(np.flatnonzero(envs.observation.mask[env]).tolist()), decision=envs.opened.decision,
            active=schedulers[active] if active < len(schedulers) else f"scheduler {active}", names=tuple(nodes.names),
            devices=nodes.gpus, use=lambda edges: _use(bars, s, nodes, edges),
        )  # fmt: skip

    def by_device(self, most: int) -> bool:
        """Return whether each device can have its own lane."""
        return 0 < int(self.devices.sum()) <= most and all(bar.devices for bar in self.bars)

    @property
    def by_cores(self) -> bool:
        """Return whether the queue is listed in cores: no job asks for a device, or none waits and there are no devices."""
        return not any(w.gpus for w in self.waiting) if self.waiting else not self.devices.any()

    @property
    def titles(self) -> list[str]:
        """Return the names of the nodes; those that may be chosen are marked."""
        marked = set(self.legal) if self.decision.marks_nodes and self.ended < self.jobs else set()
        return [f"{'▸' if n in marked else ''}{name}" for n, name in enumerate(self.names)]

    @property
    def numbers(self) -> str:
        """Return the clock and a few counts, in one line."""
        use = f"{100 * self.busy:.0f} % in use"
        counts = f"{self.in_queue} waiting, {self.running} running, {self.ended} of {self.jobs} jobs over"
        return f"{format_seconds(self.now)}   {use}   {counts}"

    @property
    def question(self) -> str:
        """Say what is to be chosen."""
        if self.ended == self.jobs:
            return "the episode is over"
        return self.decision.question(len(self.legal), self.active)


# ── from the state ──


def _ended(s: st.State) -> list[RunBar]:
    rows = s.log[: int(s.control["log"][0])]
    found = rows[["job", "node", "gpus", "devices", "start", "end"]].tolist()
    return [RunBar(job, node, gpus, devices, start, end, end) for job, node, gpus, devices, start, end in found]


def _running(s: st.State, now: float) -> list[RunBar]:
    bars = []
    for j in s.ends[: int(s.control["heap"][0])].tolist():
        row = s.rows[j]
        k = int(row["alloc"])
        while k >= 0:
            part = s.parts[k]
            gpus = float(row["gpus"]) if 0 < row["gpus"] < 1 else float(part["gpus"])
            devices = int(part["mask"]) or (1 << int(part["gpu"]) if 0 < row["gpus"] < 1 and part["gpu"] >= 0 else 0)
            number = int(s.nodes[int(part["node"])]["number"])
            bars.append(RunBar(j, number, gpus, devices, float(row["run_start"]), now, float(row["est_end"])))
            k = int(part["next"])
    return bars


def _since(s: st.State, now: float) -> float:
    """Return the time at which the picture begins: when most of the last runs began."""
    count = int(s.control["log"][0])
    starts = s.log[max(count - RECENT, 0) : count]["start"]
    first = float(s.control["first_submit"][0])
    return min(max(float(np.quantile(starts, 0.1)) if len(starts) else first, first), now)


def _waiting(s: st.State, decision: OpenDecision) -> tuple[Waiting, ...]:
    """List the first jobs of the queue: of the partition that the choice is about, then of the others."""
    control = s.control[0]
    asked = int(control["open_part"]) if control["stage"] else -1
    found: list[Waiting] = []
    for p in sorted(range(len(s.partitions)), key=lambda p: (p != asked, p)):
        part = s.partitions[p]
        queue = s.queue_jobs[int(part["head"]) : int(part["tail"])]
        first = decision.first_shown(s, queue) if p == asked else 0
        for i in range(first, min(first + MOST_WAITING - len(found), len(queue))):
            j = int(queue[i])
            row = s.rows[j]
            legal = p == asked and decision.offers(s, i, j)
            wait = float(control["now"] - row["submit"])
            found.append(Waiting(j, float(row["gpus"]), float(s.table[j]["cpus"]), float(row["remaining"]), wait, legal))
    return tuple(found)


def _busy(s: st.State) -> float:
    control = s.control[0]
    if control["up"] > 0:
        return float(control["busy"] / control["up"])
    limited = np.isfinite(s.nodes["cpus"])
    cpus = float(s.nodes["cpus"][limited].sum())
    return 1.0 - float(s.nodes["free_cpus"][limited].sum()) / cpus if cpus > 0 else 0.0


def _use(bars: Sequence[RunBar], s: st.State, nodes: Any, edges: Array) -> Array:
    """Return (nodes, edges − 1): the share in use of the scarcest of devices, cores and memory."""
    used = np.zeros((3, len(nodes), len(edges) - 1))
    for bar in bars:
        row = s.table[bar.job]
        covered = np.clip(np.minimum(bar.end, edges[1:]) - np.maximum(bar.start, edges[:-1]), 0.0, None)
        part = bar.gpus / float(row["gpus"]) if row["gpus"] > 0 else 1.0
        for k, amount in enumerate((bar.gpus, float(row["cpus"]) * part, float(row["memory"]) * part)):
            used[k, bar.node] += amount * covered
    have = np.stack([nodes.gpus.astype(np.float64), nodes.cpus, nodes.memory])[:, :, None]
    shares: Array = np.divide(used, have * np.diff(edges), out=np.zeros_like(used), where=(have > 0) & np.isfinite(have)).max(axis=0)
    return np.minimum(shares, 1.0)


# ── as text ──


def as_text(view: EnvView) -> str:
    """Return a Gantt chart and the queue as text, at most 100 columns wide."""
    edges = np.linspace(view.since, max(view.now, view.since + 1e-9), COLUMNS - LABEL - 2)
    lanes = _device_lanes(view, edges) if view.by_device(MOST_LANES) else _node_lanes(view, edges)
    shown = [f"{name[:LABEL]:>{LABEL}} {line}" for name, line in lanes[:MOST_LANES]]
    if len(lanes) > MOST_LANES:
        shown.append(f"{'':>{LABEL}} … and {len(lanes) - MOST_LANES} more")
    axis = f"{'':>{LABEL}} {format_seconds(view.since - view.now)}{'now':>{len(edges) - 1 - len(format_seconds(view.since - view.now))}}"
    lines = [view.numbers, view.question, "", *shown, axis, "", "    job    GPUs   cores  estimate      wait", *_queue_lines(view)]
    return "\n".join(line[:COLUMNS].rstrip() for line in lines) + "\n"


def _device_lanes(view: EnvView, edges: Array) -> list[tuple[str, str]]:
    centres = (edges[1:] + edges[:-1]) / 2
    lanes = []
    for node, count in enumerate(view.devices.tolist()):
        own = [bar for bar in view.bars if bar.node == node]
        for device in range(count):
            line = np.full(len(centres), "·")
            for bar in own:
                if bar.devices >> device & 1:
                    line[(centres >= bar.start) & (centres < bar.end)] = LETTERS[bar.job % len(LETTERS)]
            lanes.append((f"{view.titles[node]}/{device}", "".join(line)))
    return lanes


def _node_lanes(view: EnvView, edges: Array) -> list[tuple[str, str]]:
    levels = np.ceil(view.use(edges) * (len(BLOCKS) - 1)).astype(int)
    return [(name, "".join(BLOCKS[level] for level in line)) for name, line in zip(view.titles, levels, strict=True)]


def _queue_lines(view: EnvView) -> list[str]:
    lettered = view.by_device(MOST_LANES)
    lines = [
        f"{'▸' if w.choosable else ' '} {LETTERS[w.job % len(LETTERS)] if lettered else ' '} {w.job:>4} {w.gpus:>6g} {w.cpus:>7g}"
        f" {format_seconds(w.estimate):>9} {format_seconds(w.wait):>9}"
        for w in view.waiting
    ]
    rest = view.in_queue - len(lines)
    return lines + ([f"  … and {rest} more"] if rest > 0 else [])


# ── as a picture ──


def as_picture(view: EnvView) -> Array:
    """Return the picture as (height, width, 3) u1."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.6), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    gantt, queue = figure.subplots(1, 2, width_ratios=(3, 1))
    span = max(view.now - view.since, 1e-9)
    (_draw_devices if view.by_device(MOST_DEVICES) else _draw_nodes)(view, gantt, span)
    gantt.axvline(0.0, color="black", linewidth=1)
    gantt.set_xlim(-span, 0.3 * span if view.by_device(MOST_DEVICES) else 0.0)
    gantt.set_xticks([-span, -span / 2, 0.0], [format_seconds(-span), format_seconds(-span / 2), "now"])
    gantt.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{view.numbers}   ▸ {view.question}", fontsize=10, x=0.01, ha="left")
    _draw_queue(view, queue)
    canvas.draw()  # type: ignore[no-untyped-call]
    picture: Array = np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]
    return picture


def _draw_devices(view: EnvView, axes: Any, span: float) -> None:
    """Draw a lane for each device; running jobs are continued, paler, to their estimated ends."""
    first = np.concatenate([[0], np.cumsum(view.devices)])
    for bar in view.bars:
        colour = _colour(bar.job)
        for low, height in _stretches(bar.devices):
            y = first[bar.node] + low
            start = max(bar.start - view.now, -span)
            axes.barh(y, bar.end - view.now - start, height, start, align="edge", color=colour, edgecolor="white", linewidth=0.4)
            if bar.expected > view.now:
                ahead = min(bar.expected - view.now, 0.3 * span)
                axes.barh(y, ahead, height, 0.0, align="edge", color=colour, alpha=0.35, edgecolor="white", linewidth=0.4)
    for edge in first[1:-1]:
        axes.axhline(edge, color="0.75", linewidth=0.6)
    axes.set_ylim(first[-1], 0)
    _name_lanes(axes, (first[1:] + first[:-1]) / 2, view.titles)


def _draw_nodes(view: EnvView, axes: Any, span: float) -> None:
    """Draw a lane for each node, darker the more of it is in use; those that may be chosen are marked."""
    use = view.use(np.linspace(view.since, view.now, 241)) if view.now > view.since else np.zeros((len(view.names), 1))
    count = len(view.names)
    image = axes.imshow(
        use, aspect="auto", cmap="Blues", vmin=0.0, vmax=1.0, extent=(-span, 0.0, count, 0), interpolation="nearest", resample=False
    )
    scale = axes.figure.colorbar(image, ax=axes, location="bottom", aspect=60, pad=0.02, ticks=[0.0, 0.5, 1.0])
    scale.set_ticklabels(["0 %", "50 %", "100 %"], fontsize=8)
    scale.set_label("in use, of the scarcest of GPUs, cores and memory", fontsize=8)
    _name_lanes(axes, np.arange(count) + 0.5, view.titles)


def _name_lanes(axes: Any, at: Array, names: Sequence[str]) -> None:
    step = -(-len(names) // 40)
    axes.set_yticks(at[::step], list(names)[::step], fontsize=8)
    axes.tick_params(axis="y", length=0)


def _draw_queue(view: EnvView, axes: Any) -> None:
    from matplotlib.patches import Rectangle

    axes.set_axis_off()
    axes.set_ylim(MOST_WAITING + 2, 0)
    axes.set_xlim(0, 1)
    columns = (0.24, 0.46, 0.73, 1.0)
    cores = view.by_cores
    for x, name in zip(columns, ("job", "cores" if cores else "GPUs", "estimate", "wait"), strict=True):
        axes.text(x, 0.5, name, fontsize=8, color="0.4", ha="right", va="center")
    for i, w in enumerate(view.waiting):
        if view.by_device(MOST_DEVICES):
            axes.add_patch(Rectangle((0.0, i + 1.2), 0.05, 0.6, color=_colour(w.job)))
        if w.choosable:
            axes.text(-0.04, i + 1.5, "▸", fontsize=9, ha="center", va="center")
        values = (str(w.job), f"{w.cpus if cores else w.gpus:g}", format_seconds(w.estimate), format_seconds(w.wait))
        for x, text in zip(columns, values, strict=True):
            axes.text(x, i + 1.5, text, fontsize=8, ha="right", va="center", color="black" if w.choosable else "0.45")
    rest = view.in_queue - len(view.waiting)
    note = f"… and {rest} more" if rest > 0 else "" if view.waiting else "no job waits"
    axes.text(0.02, len(view.waiting) + 1.5, note, fontsize=8, color="0.4", va="center")


def _colour(job: int) -> Any:
    """Return one of twenty colours, far apart for jobs that follow one another."""
    from matplotlib import colormaps

    return colormaps["tab20"](job * 7 % 20)


def _stretches(devices: int) -> list[tuple[int, int]]:
    """Return (first, length) of the runs of ones in a bit set."""
    return [(ones.start(), len(ones[0])) for ones in re.finditer("1+", f"{devices:b}"[::-1])]


RENDERERS: Mapping[str, Callable[[EnvView], Any]] = MappingProxyType({"ansi": as_text, "rgb_array": as_picture})
