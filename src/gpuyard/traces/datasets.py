"""Public traces by name, pinned to a commit and a checksum, and downloaded once into a cache folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpuyard.errors import DataError, UsageError
from gpuyard.files import read_toml, user_path
from gpuyard.model.fields import Fields
from gpuyard.registry import Registry

FOLDER = "GPUYARD_DATA"  # environment variable: the folder of downloaded files


@dataclass(frozen=True)
class Dataset:
    """A public file of jobs; `reader` is "" where the content shows the format."""

    name: str
    title: str
    url: str
    sha256: str
    size: int  # bytes
    licence: str
    citation: str
    suffix: str  # of the file in the cache
    reader: str = ""

    @property
    def file(self) -> str:
        """The name of its file in the cache."""
        return self.name + self.suffix


def cache_folder() -> Path:
    """Return the folder for downloaded files: $GPUYARD_DATA, or `gpuyard` in the user's cache."""
    given = os.environ.get(FOLDER)
    if given:
        return user_path(given)
    return Path(_pooch().os_cache("gpuyard"))


def fetch(
    name: str, folder: Path | None = None, *, timeout: float = 30.0, pause: float = 1.0, progress: Callable[[int], None] = lambda done: None
) -> Path:
    """Return the dataset's file, downloaded unless it is there and whole. `progress` is called with the bytes received so far.

    A file with another checksum is refused and removed. A download that broke off continues the next time.
    """
    from gpuyard.traces.downloading import Resuming  # imports TLS: only where a dataset is needed

    found = DATASETS[name]
    pooch = _pooch()
    place = cache_folder() if folder is None else folder
    pooch.get_logger().setLevel("WARNING")  # otherwise it prints on stderr
    downloader = Resuming(place / f"{found.file}.part", found.size, timeout=timeout, pause=pause, progress=progress)
    try:
        place.mkdir(parents=True, exist_ok=True)
        path = pooch.retrieve(found.url, f"sha256:{found.sha256}", fname=found.file, path=place, downloader=downloader)
    except ValueError:
        raise DataError(f"dataset {name}: the download from {found.url} has another checksum and was removed") from None
    except OSError as error:
        raise DataError(
            f"dataset {name}: {place}: cannot be written: {error.strerror or error}", hint=f"set {FOLDER} to a folder"
        ) from None
    return Path(path)


def _pooch() -> Any:
    try:
        import pooch  # 0.1 s to import: only where a dataset is needed
    except ImportError:
        raise UsageError("datasets need the package pooch", hint="pip install 'gpuyard[data]'") from None
    return pooch


def _registered(path: Path) -> Registry[Dataset]:
    """Read the datasets of a TOML file; the path in its repository gives a file's suffix."""
    datasets: Registry[Dataset] = Registry("dataset")
    tables = Fields(read_toml(path, "a list of datasets"), path.name)
    for name in tables.names:
        about = tables.table(name)
        repository, commit, place = about.text("repository"), about.text("commit"), about.text("path")
        suffix = "".join(Path(place).suffixes[-2:]) if place.endswith(".gz") else Path(place).suffix
        url = f"https://raw.githubusercontent.com/{repository}/{commit}/{quote(place)}"
        title, sha256, licence, citation = (about.text(key) for key in ("title", "sha256", "licence", "citation"))
        datasets.add(name, Dataset(name, title, url, sha256, about.whole("size"), licence, citation, suffix))
        about.done()
    return datasets


DATASETS = _registered(Path(__file__).with_suffix(".toml"))
