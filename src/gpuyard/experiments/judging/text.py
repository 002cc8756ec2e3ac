"""Format texts and numbers for people and for other programs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from gpuyard.model.units import clean, csv_label

if TYPE_CHECKING:
    from gpuyard.experiments.judging.statistics import Interval


def json_text(data: Any) -> str:
    """Write JSON, with null for what is not a finite number, and characters that could control a terminal as `\\u009b`."""
    import json

    text = json.dumps(_plain(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[k : k + 4]}" for k in range(0, len(units), 4))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Write CSV: a header of all keys in order of appearance; empty cells for what is missing or not a number.

    Texts have no control characters, and none is taken for a formula by a spreadsheet (see `csv_label`).
    """
    import csv
    import io

    names = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_csv_cell, names))
    writer.writerows([_csv_cell(record.get(name)) for name in names] for record in records)
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return csv_label(value)
    return str(value).lower() if isinstance(value, bool) else value


# ── numbers for people ──

_TIMES = (("d", 86400.0, 3 * 86400.0), ("h", 3600.0, 2 * 3600.0), ("min", 60.0, 120.0), ("s", 1.0, 0.0))


def time_unit(values: Iterable[float]) -> tuple[str, float]:
    """The unit in which a column of seconds reads well, and its length in s."""
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    return next((name, size) for name, size, least in _TIMES if largest >= least)


def shown_unit(metric: str, values: Sequence[float]) -> tuple[str, float]:
    """The unit in which values of a metric are shown, and how many of the metric's own it is; empty for shares and ratios."""
    from gpuyard.metrics import resolve

    unit = resolve(metric)[0].unit
    if unit == "s":
        return time_unit([median(values)] if values else [])
    return ("" if unit == "1" else unit), 1.0


_AGGREGATIONS = {"mean": "", "p50": "median of ", "max": "largest ", "min": "smallest ", "sum": "sum of ", "std": "standard deviation of "}


def metric_title(name: str) -> str:
    """Name a metric in words: `95th percentile of turnaround (JCT)`."""
    from gpuyard.metrics import resolve

    found, aggregation = resolve(name)
    if found.kind == "run" or not aggregation:
        return found.title
    if aggregation[0] == "p" and aggregation[1:].isdigit() and aggregation != "p50":
        return f"{aggregation[1:]}th percentile of {found.title}"
    return _AGGREGATIONS.get(aggregation, f"{aggregation} of ") + found.title


_SUFFIXES = "py|toml|csv|swf|gz|bz2|xz|json|jsonl|txt|log|acct|safetensors|parquet|html"
# before the name of a file
_FOLDERS = re.compile(rf"(?<![\w./])(?:~|\.{{1,2}})?/?(?:[^/\s,;|()\[\]:=]+/)*(?=[^/\s,;|()\[\]:=]+\.(?:{_SUFFIXES})\b)")


def readable(text: str, longest: int = 60) -> str:
    """Shorten a name from outside: no control characters, no folders before file names, cut in the middle where it is long."""
    shown = _FOLDERS.sub("", clean(text).replace("\n", " "))
    if len(shown) <= longest:
        return shown
    half = (longest - 1) // 2
    return shown[: longest - 1 - half] + "…" + shown[-half:]


def telling_parts(texts: Sequence[str]) -> list[str]:
    """Drop the parts that all texts have, such as `gpus=2` in `family:shape=base,gpus=2; burst`."""
    parts = [re.split(r"[,;]\s*", text) for text in texts]
    common = set(parts[0]).intersection(*parts[1:]) if len(parts) > 1 else set()
    return [", ".join(part for part in each if part not in common) or text for each, text in zip(parts, texts, strict=True)]


def rounded(value: float, width: float, sign: str = "", most: int = 8) -> str:
    """Write a number with as many digits as its interval justifies: two of the width's own, and at most so many after the point."""
    if not math.isfinite(value) or not math.isfinite(width) or width <= 0:
        return short(value, sign)
    digits = min(max(1 - math.floor(math.log10(width)), 0), most)
    return f"{round(value, digits) + 0.0:{sign},.{digits}f}"


def short(value: float, sign: str = "") -> str:
    """Write three digits or so: `0.746`, `12.3`, `1,234`; `–` for what is not a number. `sign="+"` always shows the sign."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else f"{value:{sign}}"
    size = abs(value)
    digits = next(digits for least, digits in ((99.95, 0), (9.995, 1), (0.9995, 2), (0.0, 3)) if size >= least)
    if value == 0:
        return "0"
    return f"{value:{sign},.{digits}f}" if size >= 0.001 else f"{value:{sign}.1g}"


def with_interval(mean: float, low: float, high: float, sign: str = "") -> str:
    """Write the mean, and below it the interval where there is one."""
    return short(mean, sign) + (f"\n[{short(low, sign)}, {short(high, sign)}]" if math.isfinite(low) and math.isfinite(high) else "")


def count(number: int, what: str) -> str:
    """`1 run`, `3,072 runs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def p_text(p: float, equals: str = "") -> str:
    """Write a p value: `< 0.001`, or two digits."""
    if not math.isfinite(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{equals}{p:.2g}" if p < 0.995 else f"{equals}1"


def percent(interval: Interval, sign: Literal["", "+"] = "") -> str:
    """Write a share with its interval, in percent."""
    low, high = 100 * interval.low, 100 * interval.high
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{short(100 * interval.mean, sign)} %" if math.isfinite(interval.mean) else "–"
    mean, low_text, high_text = (rounded(100 * each, high - low, sign, most=3) for each in (interval.mean, interval.low, interval.high))
    return f"{mean} % [{low_text}, {high_text}]"


def value_text(interval: Interval, size: float = 1.0, unit: str = "") -> str:
    """Write a mean with its interval in a unit of that size, with meaningful digits only."""
    tail = f" {unit}" if unit else ""
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return short(interval.mean / size) + tail
    mean, low, high = (rounded(each / size, (interval.high - interval.low) / size) for each in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}, {high}]{tail}"


_NO_CHANGE = 0.05  # %; below it a change is written as 0.0


def change_in_words(
    share: Interval, verbs: tuple[str, str, str, str] = ("falls", "rises", "stays as it is", "does not clearly change")
) -> str:
    """Say what an interval of a change shows; the verbs are for less, more, the same, and for what is not clear."""
    from gpuyard.experiments.judging.statistics import FEWEST

    less, more, same, unclear = verbs
    low, high, width = 100 * share.low, 100 * share.high, 100 * (share.high - share.low)
    if max(abs(low), abs(high), abs(100 * share.mean)) < _NO_CHANGE or (share.mean == 0 and not width > 0):
        return same
    verb = f"{less if share.mean < 0 else more} by"
    if share.n < FEWEST or not math.isfinite(width):
        return f"{verb} {short(abs(100 * share.mean))} % (too few values to tell)"
    if low > 0 or high < 0:
        least, most = (rounded(each, width, most=1) for each in sorted((abs(low), abs(high))))
        return f"{verb} {rounded(abs(100 * share.mean), width, most=1)} % (between {least} and {most} %)"
    ends = " and ".join(rounded(each, width, "+", most=1).replace("-", "−") for each in (low, high))
    return f"{unclear} (between {ends} %)"
