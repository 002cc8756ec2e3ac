"""`gpuyard trace`: inspects, converts, samples, generates, perturbs and fetches traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.common import inputs, options
from gpuyard.cli.common.messages import say_error
from gpuyard.cli.common.output import Format, Output, Table, emit, progress_bar, say, short
from gpuyard.errors import DataError, GpuyardError, UsageError

if TYPE_CHECKING:
    from gpuyard.model.workload import Workload

app = typer.Typer(
    name="trace", no_args_is_help=True, help="Inspect, convert, sample, generate and perturb traces; fetch public ones.",
    rich_markup_mode="markdown",
)  # fmt: skip
MAX_BATCHES = 10_000
In = Annotated[str, typer.Argument(metavar="IN", help="A file, a generator or dataset:NAME.", show_default=False)]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="What to write: .swf, .csv, .swf.gz or .csv.gz.", show_default=False)]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]


@app.command("info")
@options.grouped(without=("apply",))
def info(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Files, generators or dataset:NAME.", show_default=False)],
    *, reading: inputs.Reading,
    cluster: Annotated[str | None, typer.Option(metavar="C", help="Show the load on this cluster.")] = None,
    seed: Seed = 0, how: options.FormatOption = Format.table, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Say what is in a trace: rows kept and dropped, dates, sizes, times, load, users, what is missing; several files get a line each."""
    from gpuyard.cli.common.workload_facts import data_of, facts_of, record_of

    tables, data = [], []
    for text in files:
        try:
            workload, form = reading.load(text, inputs.check_seed(seed)), reading.format_of(text)
        except GpuyardError as error:
            if len(files) == 1:
                raise
            say_error(error)
            continue
        data.append(data_of(workload, text, form))
        if len(files) == 1:
            facts = [("format", form), *facts_of(workload, cluster)]
            tables.append(Table(("is", "workload"), facts, title=text, left=frozenset({0, 1})))
    if data:
        emit(Output(tables or [_overview(data)], data, [record_of(each) for each in data]), how)
    if len(data) < len(files):
        raise DataError(f"{len(files) - len(data)} of {len(files)} could not be read")


def _overview(data: Sequence[dict[str, Any]]) -> Table:
    from gpuyard.model.units import format_seconds

    header = ("file", "format", "jobs", "dropped", "from", "span", "jobs/day", "load\n(devices)", "run time\n(median)", "wait\n(mean)",
              "users", "estimate ÷ run\n(median)", "cluster")  # fmt: skip
    rows = []
    for each in data:
        wait, ratio = each["wait"]["mean"], each["estimate"]["p50"]
        rows.append((
            each["file"], each["format"], f"{each['jobs']:,}", f"{each['rows'] - each['jobs']:,}", each["first"][:10],
            format_seconds(each["span"]), short(each["jobs_per_day"]), short(each["mean_gpus"]), format_seconds(each["run"]["p50"]),
            format_seconds(wait) if wait == wait else "–", f"{len(each['labels']['users']):,}", short(ratio) if each["requested"] else "–",
            each["cluster"]["name"],
        ))  # fmt: skip
    return Table(header, rows, left=frozenset({0, 1, 4, 12}))


@app.command("convert")
@options.grouped(without=("apply",))
def convert(
    source: In, out: Out, *, reading: inputs.Reading, show_names: options.ShowNames = False, how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Write a trace in another format; notes name what the format cannot hold."""
    workload = reading.load(source, 0)
    _save([(workload, out)], how, inputs.pseudonyms(workload, keep=show_names or reading.is_generator(source)))


@app.command("generate")
def generate(
    generator: Annotated[
        str, typer.Argument(metavar="GENERATOR", help="e.g. family:shape=bursty (`gpuyard list workloads`).", show_default=False)
    ],
    out: Out,
    seed: Seed = 0,
    with_: options.With = None,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Write a synthetic workload."""
    from gpuyard.registry import unknown_name
    from gpuyard.traces import GENERATORS

    if generator.partition(":")[0] not in GENERATORS:
        raise unknown_name("workload generator", generator.partition(":")[0], list(GENERATORS))
    _save([(inputs.reading_of(with_=with_).load(generator, inputs.check_seed(seed)), out)], how)


@app.command("export")
def export(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="W on C", help="Jobs and their cluster, e.g. 'eda:jobs=500 on hosts:count=50,seed={seed}'.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="DIR", help="Gets a folder for each seed.", show_default=False)],
    seeds: Annotated[str, typer.Option(metavar="LIST", help="e.g. 42-44.")] = "42-44",
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Write test environments, jobs and their cluster, as files that every command reads again: DIR/SEED/jobs.csv and cluster.toml."""
    from gpuyard.experiments.design.spec import parse_seeds
    from gpuyard.traces.recipes import Workloads, parse_recipe
    from gpuyard.traces.writing import write_environment

    if not parse_recipe(workload).is_generator:
        hint = "a log is a file already; `gpuyard trace sample` cuts it"
        raise UsageError(f"{workload}: only generated environments are exported", hint=hint)
    numbers = parse_seeds(seeds, "--seeds")
    source = Workloads([workload]).part("test", numbers)
    records: list[dict[str, Any]] = []
    for number in range(source.size):
        episode = source.episode(number)
        folder = out / (str(episode.seed) if source.size == len(numbers) else f"{episode.seed}-{number}")
        for what in write_environment(episode.workload, episode.cluster, folder):
            say(f"note: {folder / 'jobs.csv'} does not hold {what}")
        records.append({"folder": str(folder), "jobs": len(episode.workload), "nodes": len(episode.cluster.nodes), "is": episode.text})
    rows = [(r["folder"], f"{r['jobs']:,}", f"{r['nodes']:,}", r["is"]) for r in records]
    emit(Output([Table(("folder", "jobs", "nodes", "is"), rows, left=frozenset({0, 3}))], records, records), how)


@app.command("perturb")
@options.grouped()
def perturb(
    source: In,
    out: Out,
    *,
    reading: inputs.Reading,
    seed: Seed = 0,
    show_names: options.ShowNames = False,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Write a trace after transforms, one after the other, e.g. `--apply burst:severity=3 --apply thin:0.5`."""
    from gpuyard.traces import TRANSFORMS
    from gpuyard.traces.changes.transform import check_transform

    for text in reading.apply:
        if check_transform(text).name not in TRANSFORMS:
            raise UsageError(f"--apply {text}: acts on clusters, not on traces", hint="give it to simulate or compare")
    if not reading.apply:
        raise UsageError("nothing to apply", hint="--apply NAME:PARAMETER=VALUE (`gpuyard list transforms`)")
    workload = reading.read(source, inputs.check_seed(seed))
    names = inputs.pseudonyms(workload, keep=show_names or reading.is_generator(source))
    _save([(reading.changed(workload, seed), out)], how, names)


@app.command("sample")
@options.grouped(without=("jobs", "apply"))
def sample(
    source: In, out: Out, *,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Submits from then on: 36h, 2017-10-01T08:00.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="… and before then.")] = None,
    user: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only jobs of this user; repeatable.")] = None,
    partition: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only jobs of this partition; repeatable.")] = None,
    keep: Annotated[float | None, typer.Option(metavar="SHARE", help="A random share of the jobs, e.g. 0.3.")] = None,
    by: Annotated[str, typer.Option(metavar="job|user", help="What --keep draws: jobs, or users with all their jobs.")] = "job",
    jobs: Annotated[str | None, typer.Option(metavar="N", help="The first N of what is left.")] = None,
    batch: Annotated[str | None, typer.Option(metavar="N", help="N consecutive jobs of what is left, from a random place.")] = None,
    batches: Annotated[int, typer.Option(metavar="K", help="Number of batches, OUT-000, OUT-001 …")] = 1,
    load: Annotated[float | None, typer.Option(metavar="L", help="Scale inter-arrival times to this load.")] = None,
    cluster: Annotated[str | None, typer.Option(metavar="C", help="The cluster that --load refers to; guessed unless given.")] = None,
    seed: Seed = 0, reading: inputs.Reading, show_names: options.ShowNames = False, how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Write a part of a trace: a window, some users, a random share, the first jobs or random batches; at a load of your choice.

    The steps are applied in this order.
    """
    from gpuyard.traces import apply_all

    workload = reading.load(source, inputs.check_seed(seed))
    texts = [*_window(workload, from_, until), *_only(user, partition)]
    texts += [f"thin:keep={_digits(keep)},by={by}"] if keep is not None else []
    if jobs is not None and batch is not None:
        raise UsageError("--jobs and --batch both say how many jobs", hint="use one of them")
    if not 1 <= batches <= MAX_BATCHES or (batches > 1 and batch is None):
        raise UsageError(f"--batches {batches} does not lie in 1..{MAX_BATCHES:,}, or --batch is missing")
    texts += [f"first:{jobs}"] if jobs is not None else []
    scaling = [_load_text(workload, load, cluster)] if load is not None else []
    if not texts and not scaling and batch is None:
        raise UsageError("no part is chosen", hint="give --from, --until, --user, --partition, --keep, --jobs, --batch or --load")
    base = apply_all(workload, texts, seed)
    parts = [[f"batch:jobs={batch},number={k}", *scaling] for k in range(batches)] if batch is not None else [scaling]
    names = [out] if batches == 1 else [_numbered(out, k) for k in range(batches)]
    users = inputs.pseudonyms(workload, keep=show_names or reading.is_generator(source))
    _save([(apply_all(base, part, seed), name) for part, name in zip(parts, names, strict=True)], how, users)


def _window(workload: Workload, start: str | None, end: str | None) -> list[str]:
    from gpuyard.traces.origin import instant

    if start is None and end is None:
        return []
    given = {"start": start, "end": end}
    times = {name: max(instant(text, workload), 0.0) for name, text in given.items() if text is not None}
    return ["window:" + ",".join(f"{name}={_digits(seconds)}" for name, seconds in times.items())]


def _digits(value: float) -> str:
    """Write all digits of a number, for a text that is parsed again."""
    return repr(value).removesuffix(".0")


def _only(users: Sequence[str] | None, partitions: Sequence[str] | None) -> list[str]:
    given = {"user": users, "partition": partitions}
    for name, labels in given.items():
        odd = [label for label in labels or () if set(label) & set(",|") or not label.strip()]
        if odd:
            raise UsageError(f"--{name} {odd[0]!r}: names with a comma or a bar are not allowed here", hint="use Workload.take in Python")
    parts = [f"{name}={'|'.join(labels)}" for name, labels in given.items() if labels]
    return ["only:" + ",".join(parts)] if parts else []


def _load_text(workload: Workload, load: float, cluster: str | None) -> str:
    """Return the transform for a load on the given cluster, or on the one guessed from the whole trace."""
    from gpuyard.model.cluster_file import load_cluster
    from gpuyard.traces import guess_cluster

    if cluster is not None:
        found = load_cluster(cluster)
    else:
        found, origin = guess_cluster(workload)
        say(f"no --cluster: {origin}")
    if found.gpus and workload.jobs.gpus.any():
        return f"load:target={_digits(load)},gpus={found.gpus}"
    cores = float(found.nodes.cpus.sum())
    if cores == float("inf"):
        raise UsageError(f"--load: {found.name} does not say how many cores it has")
    return f"load:target={_digits(load)},cores={_digits(cores)}"


def _numbered(out: Path, k: int) -> Path:
    """Number a file name: `jobs.csv.gz` becomes `jobs-007.csv.gz`."""
    stem, dot, rest = out.name.partition(".")
    return out.with_name(f"{stem}-{k:03d}{dot}{rest}")


@app.command("fetch")
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Public traces (`gpuyard list datasets`).", show_default=False)],
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Fetch public traces, each once and with its checksum; `dataset:NAME` then reads it.

    They are kept in $GPUYARD_DATA, or in the user's cache. An interrupted download continues where it stopped.
    """
    from gpuyard.traces import DATASETS
    from gpuyard.traces import fetch as fetched

    chosen = [DATASETS[name] for name in names]
    records = []
    for each in chosen:
        with progress_bar(f"fetching {each.name}", each.size) as progress:
            path = fetched(each.name, progress=progress)
        say(f"{each.name}: licence: {each.licence}; cite: {each.citation}")
        records.append({"dataset": each.name, "file": str(path), "bytes": each.size, "licence": each.licence, "citation": each.citation})
    rows = [(str(r["dataset"]), str(r["file"]), f"{r['bytes']:,}") for r in records]
    emit(Output([Table(("dataset", "file", "bytes"), rows, left=frozenset({0, 1}))], records, records), how)


def _save(parts: Sequence[tuple[Workload, Path]], how: Format, names: Mapping[str, str] | None = None) -> None:
    """Write each workload to its file, with other names for the users where some are given, and list what was written."""
    from gpuyard.model.units import format_seconds
    from gpuyard.traces.writing import write_workload, writer_of

    for _, path in parts:
        writer_of(path)
    records: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    for workload, path in parts:
        lost = write_workload(workload.with_users(names) if names else workload, path)
        notes |= dict.fromkeys(f"note: {path.name} does not hold {what}" for what in lost)
        span = float(workload.jobs.submit[-1] - workload.jobs.submit[0]) if len(workload) else 0.0
        records.append({"file": str(path), "jobs": len(workload), "span": span, "is": workload.name, "lost": "; ".join(lost)})
    for note in notes:
        say(note)
    if names:
        say(f"note: written{inputs.RENAMED}")
    rows = [(r["file"], f"{r['jobs']:,}", format_seconds(r["span"]), r["is"]) for r in records]
    emit(Output([Table(("file", "jobs", "span", "is"), rows, left=frozenset({0, 3}))], records, records), how)
