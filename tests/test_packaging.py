"""What is in the wheel and the sdist, what an installation without extras can do, and what it says about the rest."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from gpuyard import extras
from gpuyard.errors import UsageError
from gpuyard.extras import EXTRAS, MissingPackageError, is_installed, needing_extras, require

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NODE = (
    "polars",
    "highspy",
    "matplotlib",
    "plotly",
    "gymnasium",
    "pooch",
    "jax",
    "optax",
    "sklearn",
    "ray",
    "tensorboardX",
)  # not on a node
REFUSE = """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refusing())
"""


def without(names: tuple[str, ...], program: str, *, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that can import none of the packages."""
    command = [sys.executable, "-c", REFUSE.format(names=set(names)) + program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, capture_output=True, check=True)
    return folder


def test_the_wheel_has_all_of_the_package_and_nothing_else(built: Path):
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "gpuyard").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert source - names == set()
    assert {name for name in names - source if ".dist-info/" not in name} == set()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert wheel.stat().st_size < 10e6


def test_the_sdist_can_be_tested_and_documented(built: Path):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "Makefile",
        "tests/test_packaging.py",
        "docs/index.md",
        "requirements/dev.lock",
    } <= names
    assert not any("__pycache__" in name or name.startswith(".venv") for name in names)


def test_a_decision_of_a_trained_policy_needs_little():
    """As on a node: no package of the extras but `node` may be imported."""
    program = (
        "from gpuyard import Simulation, load_cluster, load_workload\n"
        "from gpuyard.policies import parse_scheduler\n"
        "simulation = Simulation(load_workload('gangs:jobs=40,nodes=1,load=2'), load_cluster('node8'))\n"
        "scheduler = parse_scheduler('learned:gpu/fewest/easy')\n"
        "started = 0\n"
        "while (snapshot := simulation.advance()) is not None:\n"
        "    decisions = scheduler.decide(snapshot)\n"
        "    simulation.apply(decisions)\n"
        "    started += len(decisions)\n"
        "print(scheduler.label, started)\n"
    )
    assert without(NODE, program).stdout == "learned:gpu/fewest/easy 40\n"


def test_the_base_compares_simulates_and_writes_the_report(tmp_path: Path):
    program = (
        "from gpuyard.cli.main import run\n"
        "assert run('compare demo:jobs=60 --cluster node8 --seeds 1 --scheduler fcfs --scheduler learned:gpu --metric wait"
        f" --report {tmp_path}'.split()) == 0\n"
        "assert run('simulate demo:jobs=60 --cluster node8 --metric wait'.split()) == 0\n"
    )
    assert "fcfs" in without((*EXTRAS, "plotly"), program).stdout
    assert "</html>" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("polars", "simulate {folder}/jobs.csv --cluster node8"),
        ("polars", "run core --quick --out {folder}/core"),
        ("matplotlib", "simulate demo:jobs=20 --cluster node8 --plot {folder}/a.png"),
        ("highspy", "simulate demo:jobs=20 --cluster node8 --scheduler milp"),
    ],
)
def test_what_is_missing_is_told_with_how_to_install_it(tmp_path: Path, package: str, arguments: str):
    (tmp_path / "jobs.csv").write_text("submit,runtime,gpus\n0,10,1\n")
    program = f"import sys; from gpuyard.cli.main import run; sys.exit(run({arguments.format(folder=tmp_path).split()!r}))"
    what, extra = EXTRAS[package]
    said = [line for line in without((package,), program, code=2).stderr.splitlines() if "compiling" not in line]
    assert said == [
        f"gpuyard: error: {package}, which is not installed, is needed {what}", f"gpuyard: hint: pip install 'gpuyard[{extra}]'",
    ]  # fmt: skip


@pytest.mark.parametrize("package", EXTRAS)
def test_every_extra_brings_its_package(package: str):
    names = {"sklearn": "scikit-learn", "scipy": "scikit-learn", "pynvml": "nvidia-ml-py"}  # scikit-learn brings scipy
    brought = [re.split(r"[\[<>=]", each)[0] for each in PROJECT["optional-dependencies"][EXTRAS[package][1]]]
    assert names.get(package, package) in brought


def test_what_is_there_is_not_complained_about(monkeypatch: pytest.MonkeyPatch):
    require("polars")
    monkeypatch.setitem(sys.modules, "polars", None)
    assert not is_installed("polars")
    with pytest.raises(MissingPackageError, match=r"needed to read tables .*; hint: pip install 'gpuyard\[tables\]'") as raised:
        require("polars")
    assert isinstance(raised.value, UsageError)
    assert isinstance(raised.value, ImportError)


def test_other_missing_modules_are_not_explained():
    with pytest.raises(ModuleNotFoundError, match="No module named 'nowhere'"), needing_extras():
        import nowhere  # type: ignore[import-not-found]  # noqa: F401
    assert extras.missing(ModuleNotFoundError(name="nowhere")) is None


@pytest.mark.slow
def test_a_fresh_environment_runs_it():
    """It needs an index of packages. `benchmarks/install.py` builds, installs and runs what a person types first."""
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "install.py")], capture_output=True, text=True, check=False)
    if "pip install" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("no index of packages")
    assert done.returncode == 0, done.stderr
    assert "Shortest job first" in done.stdout or "sjf" in done.stdout
    assert float(re.findall(r"([\d.]+) MB  in all", done.stdout)[0]) < 450


@pytest.mark.slow
def test_there_are_wheels_for_a_later_python():
    script = [sys.executable, str(ROOT / "benchmarks" / "install.py"), "--resolve", "3.13", "--extras", "all"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    if "No matching distribution" in done.stderr and "numpy" in done.stderr:
        pytest.skip("no index of packages")
    assert done.returncode == 0, done.stderr
    assert "cp313" in done.stdout
