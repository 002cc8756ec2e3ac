"""`gpuyard serve`: what it refuses, and what it says."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.report.charts import PALETTE
from support.nodes import until

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("options", "why"), [
    (["--host", "0.0.0.0"], "without a token"), (["--allow-actions"], "needs a token"), (["node", "slurm"], "cannot be shown together"),
    (["lsf", "lsf"], "cannot be shown together"),
    (["--scheduler", "sjf"], "has its own scheduler"), (["no-such-file.json"], "no-such-file.json"),
    (["slurm", "--folder", "x"], "belongs to a node"),
])  # fmt: skip
def test_what_cannot_be_served_is_refused_at_once(cli, options: list[str], why: str):
    done = cli("serve", *options)
    assert done.code in (1, 2) and why in " ".join(done.err.split())


def test_it_serves_with_a_token_until_it_is_told_to_stop(tmp_path: Path):
    log = tmp_path / "log"
    with log.open("wb") as file:
        command = [
            sys.executable,
            "-m",
            "gpuyard",
            "serve",
            "--port",
            "0",
            "--token",
            str(tmp_path / "token"),
            "--folder",
            str(tmp_path / "node"),
        ]
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, "COLUMNS": "200"})
    try:
        until(lambda: "Ctrl-C ends it" in log.read_text() or process.poll() is not None)
        said, token = log.read_text(), (tmp_path / "token").read_text().strip()
        assert f"/#token={token}" in said and (tmp_path / "token").stat().st_mode & 0o077 == 0
        port = int(said.partition("127.0.0.1:")[2].partition("/")[0])

        def status() -> int:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                connection.request("GET", "/api/live")
                return connection.getresponse().status
            except OSError:
                return 0
            finally:
                connection.close()

        until(lambda: status() == 401, "it asks for the token")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
    assert "Traceback" not in log.read_text()


def test_reports_and_the_dashboard_have_one_palette():
    css = (ROOT / "src" / "gpuyard" / "report" / "page" / "palette.css").read_text()
    light = css.partition("@media")[0]
    assert [f"--c{k + 1}: {colour}" in light for k, colour in enumerate(PALETTE)] == [True] * len(PALETTE)
    own = (ROOT / "src" / "gpuyard" / "web" / "static" / "app.css").read_text()
    assert ":root" not in own
