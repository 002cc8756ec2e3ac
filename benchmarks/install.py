"""What an installation weighs, and whether it works: builds wheel and sdist, and installs the wheel into a fresh environment.

    python benchmarks/install.py [--extras all] [--resolve 3.13] [--python python3.12]

Outside the repository `gpuyard compare demo` must then run. The table has megabytes on the disk, without pip. `--resolve` looks for wheels
of another version of Python instead: all that the base, or the extras, need must exist as wheels for it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# pip takes each at its word
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
OWN = ("pip", "setuptools", "pkg_resources", "_distutils_hack")  # came with the environment


def called(command: Sequence[object], **options: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def built(folder: Path) -> Path:
    """Build sdist and wheel, the wheel from the sdist, as an index would; return the wheel."""
    called([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder], cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    called(["tar", "-xzf", sdist, "-C", folder])
    called([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=folder / sdist.name.removesuffix(".tar.gz"))
    (wheel,) = folder.glob("*.whl")
    return wheel


def megabytes(path: Path) -> float:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_blocks for file in files if not file.is_symlink()) * 512 / 1e6


def install(wheel: str, python: str, folder: Path) -> Path:
    """Make an environment with the wheel in it; return its site-packages."""
    called([python, "-m", "venv", folder / "venv"])
    called([folder / "venv/bin/python", "-m", "pip", "install", "--quiet", wheel])
    return next((folder / "venv/lib").glob("python*/site-packages"))


def tried(folder: Path) -> None:
    """Run what a person types first, outside the repository."""
    program = folder / "venv/bin/gpuyard"
    for arguments in (["--version"], ["list", "policies"], ["compare", "demo:jobs=300", "--seeds", "1", "--metric", "wait"]):
        print(f"$ gpuyard {' '.join(arguments)}\n{called([program, *arguments], cwd=folder)[:600]}")


def main() -> int:
    """Measure an installation, or resolve wheels for another Python."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", default="", help="e.g. all or plots,tables")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environment")
    parser.add_argument("--resolve", default="", metavar="3.13", help="look for wheels of this version instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = f"{built(folder)}{f'[{given.extras}]' if given.extras else ''}"
        if given.resolve:
            platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
            only = ["--only-binary", ":all:", "--python-version", given.resolve, *platforms, "--implementation", "cp"]
            called(
                [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *only, "-d", folder / "wheels", wheel]
            )
            print("\n".join(sorted(path.name for path in (folder / "wheels").iterdir())))
            return 0
        site = install(wheel, given.python, folder)
        sizes = {path.name: megabytes(path) for path in site.iterdir() if not path.name.startswith(OWN)}
        for part, size in sorted(sizes.items(), key=lambda pair: -pair[1])[:15]:
            print(f"{size:8.1f} MB  {part}")
        print(f"{sum(sizes.values()):8.1f} MB  in all")
        tried(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
