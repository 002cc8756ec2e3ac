"""What trains on a machine with little installed can be imported and used there."""

from __future__ import annotations

import subprocess
import sys

ABSENT = ("polars", "highspy", "matplotlib", "plotly", "gymnasium", "pooch", "tensorboardX")
BLOCK = "import sys\nfor name in {names!r}: sys.modules[name] = None\n"


def run_without(names, program):
    ended = subprocess.run([sys.executable, "-c", BLOCK.format(names=names) + program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_episodes_are_made_without_them():
    program = (
        "import gpuyard, gpuyard.learn, gpuyard.envs, gpuyard.policies, gpuyard.traces.generators.family, gpuyard.learn.run.training\n"
        "from gpuyard.traces.recipes import Workloads\n"
        "print(len(Workloads(['family on 8']).part('train').episode(5).workload))\n"
    )
    assert int(run_without(ABSENT, program)) > 0


def test_a_log_is_read_without_them(tmp_path):
    log = tmp_path / "log.swf"
    log.write_text("".join(f"{k} {k * 100} 0 50 1 -1 -1 1 100 -1 1 1 1 -1 1 1 -1 -1\n" for k in range(1, 400)))
    program = (
        "from gpuyard.traces.recipes import Workloads\n"
        f"print(len(Workloads(['{log}[jobs=20; estimate=rolling]']).part('train').episode(5).workload))\n"
    )
    assert run_without(ABSENT, program) == "20\n"


def test_the_loop_and_the_environments_load_no_learning_framework():
    program = (
        "import gpuyard.learn.run.training, gpuyard.learn.run.plan, gpuyard.envs.kinds.base, gpuyard.cli.main\n"
        f"print(sorted({{name.partition('.')[0] for name in sys.modules}} & set({(*ABSENT, 'jax', 'optax', 'sklearn')!r})))\n"
    )
    assert run_without((), program) == "[]\n"
