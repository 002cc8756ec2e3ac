"""`gpuyard explain`: what a policy looks at."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.common import inputs, options
from gpuyard.cli.common.messages import say_report
from gpuyard.cli.common.output import Format, Output, Table, csv_text, emit, json_text, progress_bar, short
from gpuyard.errors import UsageError
from gpuyard.extras import is_installed

if TYPE_CHECKING:
    from gpuyard.experiments.studies.explaining import Explanation
    from gpuyard.experiments.studies.stage import Feature

_BARS = "▁▂▃▄▅▆▇█"
TOP = 12
LEAST = 0.00005  # a smaller share is shown as 0
MAX_EPISODES = 1000


def explain(
    checkpoint: Annotated[list[str], typer.Argument(help="PATH.safetensors or learned:NAME; repeatable.")],
    workload: Annotated[
        list[str] | None,
        typer.Option(metavar="W[OPTIONS][ on C]", help="Written as for `train`; default: its validation workloads; repeatable."),
    ] = None,
    cluster: Annotated[str | None, typer.Option(metavar="C", help="The cluster for workloads that name none.")] = None,
    episodes: Annotated[int, typer.Option(metavar="N", help="Runs along which decisions are recorded.")] = 12,
    top: Annotated[int, typer.Option(metavar="N", help="Features in the table; json and csv have all.")] = TOP,
    seed: Annotated[int, typer.Option(help="Seed of the permutations.")] = 0,
    report: options.Report = None,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Show what a policy looks at: which features matter, how, and what it chooses when.

    Importance is by permutation: how often its choice changes, and how much worse whole runs become, when one feature takes values
    that it had in other decisions.
    """
    from gpuyard.experiments.studies.evaluation import contender
    from gpuyard.experiments.studies.explaining import explain as explained
    from gpuyard.experiments.studies.explaining import steps

    if not 1 <= episodes <= MAX_EPISODES:
        raise UsageError(f"--episodes {episodes} does not lie in 1..{MAX_EPISODES:,}")
    found = []
    for each in [contender(text) for text in checkpoint]:
        with progress_bar(f"explaining {each.text}", steps(each, episodes)) as progress:
            found.append(explained(each, workload or (), cluster or "", episodes=episodes, seed=inputs.check_seed(seed), progress=progress))
    output = describe(found, max(top, 1))
    if report is not None:
        write_explanations(found, output, report)
    emit(output, how)


def describe(explanations: Sequence[Explanation], top: int = TOP) -> Output:
    """Describe explanations: tables for people; json has everything, csv a row for each feature."""
    tables = [table for explanation in explanations for table in _tables(explanation, top)]
    records = [
        {"checkpoint": explanation.checkpoint, **_feature_data(feature)} for explanation in explanations for feature in explanation.features
    ]
    return Output(tables, [as_data(explanation) for explanation in explanations], records, [_words(each) for each in explanations])


def _tables(explanation: Explanation, top: int) -> list[Table]:
    found = [_importance(explanation, top)]
    if explanation.regimes:
        found.append(_regimes(explanation))
    if explanation.likeness:
        found.append(_likeness(explanation))
    return found


def _importance(explanation: Explanation, top: int) -> Table:
    rows = [
        (feature.name, "choice" if feature.of_row else "situation", _percent(feature.changed), _percent(feature.worse), _curve(feature))
        for feature in explanation.features[:top]
    ]
    title = f"{explanation.checkpoint}: {explanation.decisions:,} decisions in {explanation.episodes} runs of {explanation.workloads}"
    every = explanation.episodes + explanation.empty
    left = len(explanation.features) - len(rows)
    caption = f"{explanation.empty} of {every} episodes had no choice and are left out\n" if explanation.empty else ""
    caption += f"when the feature is permuted: choices that become others; {explanation.objective} of whole runs worse by that much\n"
    caption += "partial dependence: over the feature's percentiles, lowest to highest"
    caption += f"\n{left} more features matter less (--top {len(explanation.features)})" if left > 0 else ""
    header = ("feature", "of the", "choices that\nchange", "objective\nworse", "partial dependence")
    return Table(header, rows, title, frozenset({0, 1, 4}), caption=caption)


def _percent(share: float) -> str:
    value = 0.0 if abs(share) < LEAST else 100 * share
    return "–" if math.isnan(share) else f"{short(value)} %"


def _curve(feature: Feature) -> str:
    if not feature.curve:
        return ""
    bars = "".join(_BARS[min(int(value * len(_BARS)), len(_BARS) - 1)] for value in feature.curve)
    return f"{bars} {feature.of}: {100 * feature.curve[0]:.0f} → {100 * feature.curve[-1]:.0f} %"


def _regimes(explanation: Explanation) -> Table:
    rows = [
        (regime.name, *(f"{100 * share:.0f} %" for share in regime.shares), f"{regime.entropy:.2f}", f"{regime.decisions:,}")
        for regime in explanation.regimes
    ]
    marked = frozenset((r, 1 + regime.shares.index(max(regime.shares))) for r, regime in enumerate(explanation.regimes))
    header = ("regime", *explanation.actions, "entropy", "choices")
    return Table(header, rows, "choices by regime", marked=marked, caption="entropy: 0 always the same choice, 1 all equally often")


def _likeness(explanation: Explanation) -> Table:
    ranked = any(not math.isnan(each.rank) for each in explanation.likeness)
    rows = [
        (each.name, _percent(each.same), *([short(each.rank)] if ranked else []), f"{each.decisions:,}") for each in explanation.likeness
    ]
    header = ("heuristic", "same choice", *(["rank\ncorrelation"] if ranked else []), "decisions")
    caption = "of the whole queue's order (Spearman)" if ranked else "where the heuristics are not all of one mind"
    return Table(header, rows, "like which heuristic", caption=caption)


def _words(explanation: Explanation) -> str:
    """Sum up an explanation in one sentence."""
    first = [feature.name for feature in explanation.features[:3] if feature.changed > 0]
    text = f"{explanation.checkpoint} looks at {', '.join(first)} most" if first else f"{explanation.checkpoint} looks at nothing"
    if explanation.regimes:
        all_ = explanation.regimes[0]
        best = max(range(len(all_.shares)), key=lambda k: all_.shares[k])
        return f"{text}; it chooses {explanation.actions[best]} most often, {100 * all_.shares[best]:.0f} % of the time."
    like = next((each for each in explanation.likeness if each.decisions), None)
    return f"{text}; of the heuristics it is most like {like.name}, {100 * like.same:.0f} % of choices." if like else f"{text}."


def _feature_data(feature: Feature) -> dict[str, Any]:
    return {
        "feature": feature.name, "of": "row" if feature.of_row else "context", "changed": feature.changed, "worse": feature.worse,
        "curve": " ".join(f"{value:.4g}" for value in feature.curve), "curve_of": feature.of,
    }  # fmt: skip


def as_data(explanation: Explanation) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "checkpoint": explanation.checkpoint, "decision": explanation.decision, "workloads": explanation.workloads,
        "objective": explanation.objective, "episodes": explanation.episodes,
        "episodes_without_choice": explanation.empty, "decisions": explanation.decisions,
        "features": [{**_feature_data(feature), "curve": list(feature.curve)} for feature in explanation.features],
        "actions": list(explanation.actions),
        "regimes": [{**vars(regime), "shares": list(regime.shares)} for regime in explanation.regimes],
        "likeness": [vars(each) for each in explanation.likeness],
        "over_time": {"run": explanation.run, "times": list(explanation.times), "scores": [list(row) for row in explanation.over_time]},
    }  # fmt: skip


# ── the report ──


def write_explanations(explanations: Sequence[Explanation], output: Output, out: Path) -> None:
    """Write a page to a file that ends in .html, or into a folder, where the tables and figures lie beside it."""
    from gpuyard.files import write_bytes
    from gpuyard.report.page.explained import explanation_page
    from gpuyard.report.writing import write_page

    drawn = [_drawn(f"explanation-{k + 1}", each) for k, each in enumerate(explanations)]
    pictures = [{_title(name): data for name, data in files.items() if name.endswith(".png")} for files in drawn]
    page = explanation_page(explanations, output.text, pictures, shlex.join(["gpuyard", *sys.argv[1:]]))
    if out.suffix.lower() != ".html":
        texts = {"table.csv": csv_text(output.records), "table.json": json_text(output.data)}
        for name, data in [*((name, text.encode()) for name, text in texts.items()), *(pair for files in drawn for pair in files.items())]:
            write_bytes(out / name, data)
    say_report(write_page(page, out))


def _drawn(name: str, explanation: Explanation) -> dict[str, bytes]:
    """Draw the figures of an explanation: file name → content; none where figures cannot be drawn."""
    from gpuyard.report.learned import save_explanation

    if not is_installed("matplotlib"):
        return {}
    with TemporaryDirectory() as folder:
        save_explanation(explanation, [Path(folder, f"{name}{suffix}") for suffix in (".png", ".pdf")])
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def _title(file: str) -> str:
    return "Values of the choices over one run" if "over-time" in file else "Importance, dependence and choices"
