"""Print the part of dev.lock that a person at a desk needs: gpuyard with the extra `all`, and what builds it.

    python requirements/desk.py > requirements/desk.lock

It reads what the packages of this environment require, so it runs where dev.lock is installed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

WANTED = ("gpuyard[all]", "hatchling", "editables")
HEAD = "# What `make demo` installs: the part of dev.lock that gpuyard[all] and its build need. Made by requirements/desk.py."


def needed() -> set[str]:
    """Names of the packages that are wanted, and of all that they require here."""
    found: set[str] = set()
    todo = [Requirement(text) for text in WANTED]
    seen = set()
    while todo:
        each = todo.pop()
        if str(each) in seen:
            continue
        seen.add(str(each))
        found.add(canonicalize_name(each.name))
        todo += required_by(each)
    return found


def required_by(package: Requirement) -> Iterator[Requirement]:
    try:
        texts = requires(package.name) or ()
    except PackageNotFoundError:
        return
    for each in map(Requirement, texts):
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in (*package.extras, "")):
            yield each


def main() -> None:
    lock = Path(__file__).with_name("dev.lock").read_text(encoding="utf-8")
    names = needed()
    pins = [pin for pin in re.split(r"(?<!\\)\n", lock) if pin and not pin.startswith("#")]
    sys.stdout.write("\n".join([HEAD, *(pin for pin in pins if canonicalize_name(pin.partition("==")[0]) in names)]) + "\n")


if __name__ == "__main__":
    main()
