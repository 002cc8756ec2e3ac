"""What goes with a deployment on the command line: the hook, the unit, its health, and what is refused."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import time

import pytest

from gpuyard.cli.main import run
from gpuyard.live.log import RotatedLog


def test_the_hook_names_what_was_asked_for(capsys, tmp_path):
    assert run(["deploy", "lua", "--partition", "gpu", "--partition", "long", "--deadman", "5m", "--operator", "64030"]) == 0
    text = capsys.readouterr().out
    assert "local DEADMAN = 300" in text
    assert '["gpu"] = true, ["long"] = true' in text
    assert "[0] = true, [64030] = true" in text
    lua = shutil.which("luac") or shutil.which("luac5.1")
    if lua:
        (tmp_path / "job_submit.lua").write_text(text)
        assert subprocess.run([lua, "-p", str(tmp_path / "job_submit.lua")], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["lua"], "which partitions?"),
        (["lua", "--partition", 'x"] = true } os.execute("id") --'], "is not the name of a partition"),
        (["lua", "--partition", "gpu", "--stop-file", 'a"b'], "needs a whole path of plain letters"),
        (["lua", "--partition", "gpu", "--deadman", "1s"], "makes no sense"),
        (["unit"], "which deployment?"),
        (["unit", "--user", "a b", "slurm"], "is not the name of a user"),
        (["slurm"], "which mode?"),
        (["slurm", "--order", "--place"], "which mode?"),
        (["slurm", "--shadow", "--every", "0s"], "--every 0s: not a time that makes sense"),
        (["slurm", "--place", "--partition", "gpu", "--deadman", "30s"], "less than six cycles"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys, arguments, told):
    assert run(["deploy", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_the_unit_has_no_more_rights_than_it_needs(capsys):
    assert run(["deploy", "unit", "slurm", "--order", "--scheduler", "guard:after=24h(sjf/fewest/easy)"]) == 0
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(capsys.readouterr().out)
    service = unit["Service"]
    assert service["User"] == "slurm"
    scheduler = "'guard:after=24h(sjf/fewest/easy)'"
    assert service["ExecStart"].endswith(f"deploy slurm --order --scheduler {scheduler} --log /var/log/gpuyard/slurm.jsonl")
    assert (service["NoNewPrivileges"], service["ProtectSystem"], service["CapabilityBoundingSet"]) == ("yes", "strict", "")


def test_health_is_an_exit_code(capsys, tmp_path):
    log = RotatedLog(tmp_path / "log.jsonl")
    assert run(["deploy", "health", str(log.path)]) == 3
    log.add({"t": time.time(), "cycle": 1, "mode": "order", "acts": True, "every": 10.0})
    assert run(["deploy", "health", str(log.path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "well: order mode, acting, cycle 1"


def test_a_shadow_log_without_starts_is_no_measure(capsys, tmp_path):
    log = RotatedLog(tmp_path / "log.jsonl")
    log.add({"t": 1.0, "started": []})
    assert run(["deploy", "slurm", "--order", "--against", str(log.path)]) == 2
    assert "no job started while it was written" in capsys.readouterr().err
