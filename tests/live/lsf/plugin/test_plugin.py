"""The plugin of LSF's scheduler in a host program that stands in for mbschd, under the address and undefined-behaviour sanitizers.

Decisions are followed while they are fresh; dead, slow or lying, their publisher leaves LSF as it was. No LSF was at hand.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import time
import warnings
import zlib
from pathlib import Path

import pytest

import gpuyard.live.lsf
from gpuyard.errors import UsageError
from gpuyard.live.lsf.publishing import DecisionFile, PublishSettings, decision_bytes

PLUGIN = Path(gpuyard.live.lsf.__file__).parent / "plugin"
HOSTS = ["h1", "h2", "h3", "h4", "h5"]
ALL = set(HOSTS)
SANITIZED = ["-g", "-O1", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The host program and the plugin, compiled here."""
    compiler = shutil.which("cc")
    if compiler is None:
        what = "no C compiler: the plugin for LSF is NOT tested"
        warnings.warn(pytest.PytestWarning(f"SKIPPED: {what}"), stacklevel=2)
        pytest.skip(what)
    folder = tmp_path_factory.mktemp("plugin")
    host, plugin = folder / "fake_mbschd", folder / "schmod_gpuyard.so"
    common = [compiler, *SANITIZED, f"-I{PLUGIN}"]
    subprocess.run([*common, "-rdynamic", "-o", host, Path(__file__).parent / "fake_mbschd.c", "-ldl"], check=True)
    subprocess.run([*common, "-fPIC", "-shared", "-o", plugin, PLUGIN / "schmod_gpuyard.c", PLUGIN / "decisions.c"], check=True)
    return host, plugin


class Mbschd:
    """The host program: sessions over jobs 1, 2 and 3, and one that carries no tag of ours."""

    def __init__(self, built, path, texts=("GPUYARD[1]", "GPUYARD[2]", "other;GPUYARD[3]", "")):
        environment = {**os.environ, "GPUYARD_DECISIONS": str(path), "ASAN_OPTIONS": "detect_leaks=1"}
        self.process = subprocess.Popen(
            [str(each) for each in built], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.logged: list[str] = []
        for host in HOSTS:
            self.send(f"host {host}")
        for number, text in enumerate(texts, 1):
            self.send(f"job {number} {text}".rstrip())

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def session(self):
        """Return the hosts that are left to each request."""
        self.send("session")
        found = {}
        while (line := self.process.stdout.readline()) != ".\n":
            assert line, self.process.stderr.read()
            if line.startswith("log: "):
                self.logged.append(line[5:].strip())
            else:
                number, waits, elsewhere, *hosts = line.split()
                found[int(number)] = set(hosts)
                assert int(waits) + int(elsewhere) + len(hosts) == len(HOSTS)
        return found

    def close(self):
        out, errors = self.process.communicate("end\n", timeout=60)
        assert self.process.returncode == 0, errors
        assert errors == ""
        return out


@pytest.fixture
def scheduler(built, tmp_path):
    made = Mbschd(built, tmp_path / "decisions")
    yield made
    made.close()


@pytest.fixture
def file(tmp_path):
    return DecisionFile(tmp_path / "decisions", PublishSettings(stale=600.0, new=600.0, kept=600.0))


UNTOUCHED = {1: ALL, 2: ALL, 3: ALL, 4: ALL}
DECIDED = {1: ("h2",), 2: ("h1", "h5")}
FOLLOWED = {1: {"h2"}, 2: {"h1", "h5"}, 3: set(), 4: ALL}


def test_jobs_start_where_it_was_decided_and_wait_otherwise(scheduler, file):
    file.publish(DECIDED, time.time())
    assert scheduler.session() == FOLLOWED  # 3 is too new to be named, 4 is none of ours
    file.publish({1: (), 2: ("h3",), 3: ("h4",)}, time.time())
    assert scheduler.session() == {1: set(), 2: {"h3"}, 3: {"h4"}, 4: ALL}
    assert scheduler.logged == []  # nothing to report


def test_dead(scheduler, file):
    """It never was there, or has gone: LSF schedules by itself."""
    assert scheduler.session() == UNTOUCHED
    file.publish(DECIDED, time.time())
    assert scheduler.session() == FOLLOWED
    file.withdraw()
    assert scheduler.session() == UNTOUCHED
    assert scheduler.logged == [
        "schmod_gpuyard: decisions are not there: LSF schedules by itself",
        "schmod_gpuyard: decisions are followed",
        "schmod_gpuyard: decisions are not there: LSF schedules by itself",
    ]


@pytest.mark.parametrize(("behind", "followed"), [(0, True), (500, True), (700, False), (-1, True), (-60, False), (1e8, False)])
def test_slow(scheduler, file, behind, followed):
    """Stale decisions are not followed, and none from the future, as after a clock was set."""
    file.publish(DECIDED, time.time() - behind)
    assert scheduler.session() == (FOLLOWED if followed else UNTOUCHED)


def test_decisions_that_become_stale_while_nobody_publishes(scheduler, tmp_path):
    DecisionFile(tmp_path / "decisions", PublishSettings(stale=5.0)).publish(DECIDED, time.time() - 4.9)
    scheduler.session()
    scheduler.send("sleep 200")
    assert scheduler.session() == UNTOUCHED


def test_no_job_is_kept_for_ever(built, tmp_path):
    """One that is not named only while it may be too new, and any only for so long."""
    for settings, expected in (
        (PublishSettings(600.0, new=0.001, kept=600.0), {**FOLLOWED, 3: ALL}),
        (PublishSettings(600.0, new=600.0, kept=0.001), UNTOUCHED),
    ):
        DecisionFile(tmp_path / "decisions", settings).publish(DECIDED, time.time())
        scheduler = Mbschd(built, tmp_path / "decisions")
        scheduler.send("sleep 20")
        assert scheduler.session() == expected
        scheduler.close()


# ── lying ──


def test_whatever_is_changed_or_cut_off_is_noticed(scheduler, file, tmp_path):
    good = decision_bytes(DECIDED, 1, time.time(), file.settings)
    for cut in range(0, len(good), 7):
        file.path.write_bytes(good[:cut])
        assert scheduler.session() == UNTOUCHED
    for at in range(len(good)):
        file.path.write_bytes(good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :])
        assert scheduler.session() == UNTOUCHED
    file.path.write_bytes(good + b"\0")
    assert scheduler.session() == UNTOUCHED
    file.path.write_bytes(good)
    assert scheduler.session() == FOLLOWED
    assert "schmod_gpuyard: decisions are malformed: LSF schedules by itself" in scheduler.logged


def with_checksum(data: bytes) -> bytes:
    """A liar that knows the checksum."""
    made = bytearray(data)
    if len(made) >= 72:
        struct.pack_into("<I", made, 64, 0)
        struct.pack_into("<I", made, 64, zlib.crc32(made))
    return bytes(made)


def test_a_liar_who_knows_the_checksum_harms_nobody(scheduler, file):
    """Whatever the numbers say, the plugin reads nothing beyond the file; the sanitizers watch. It can only take candidates away."""
    good = decision_bytes({k: HOSTS[: k % 5] for k in range(1, 40)}, 1, time.time(), file.settings)
    rng = random.Random(4)
    for _ in range(400):
        changed = bytearray(good)
        for _ in range(rng.randint(1, 8)):
            changed[rng.randrange(len(good))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        file.path.write_bytes(with_checksum(bytes(changed[: rng.choice((len(good), rng.randrange(len(good))))])))
        found = scheduler.session()
        assert found[4] == ALL
        assert set(found) == {1, 2, 3, 4}
    edges = (b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"\xff\xff\xff\x7f", b"\x01\x00\x00\x00")
    for at in range(0, 80, 4):
        for value in edges:
            file.path.write_bytes(with_checksum(good[:at] + value + good[at + 4 :]))
            assert scheduler.session()[4] == ALL


def test_what_is_not_a_file_of_ours_is_left_alone(built, tmp_path):
    """A pipe without a writer would hold a reader up for ever; a link leads anywhere; a file that others may write says anything."""
    good = decision_bytes(DECIDED, 1, time.time(), PublishSettings(600.0))
    path = tmp_path / "decisions"
    scheduler = Mbschd(built, path)

    def pipe():
        os.mkfifo(path)

    def link():
        (tmp_path / "elsewhere").write_bytes(good)
        path.symlink_to(tmp_path / "elsewhere")

    def writable():
        path.write_bytes(good)
        path.chmod(0o666)

    def huge():
        with path.open("wb") as made:
            made.truncate(1 << 40)

    for make in (pipe, link, path.mkdir, writable, huge):
        make()
        assert scheduler.session() == UNTOUCHED
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    DecisionFile(path).publish(DECIDED, time.time())
    assert scheduler.session() == FOLLOWED
    assert any("not a file of ours" in line for line in scheduler.logged)
    scheduler.close()


@pytest.mark.skipif(bool(os.geteuid()), reason="only root can give files away: that other users' files are refused is NOT tested")
def test_a_file_of_another_user_is_not_followed(scheduler, file):
    file.publish(DECIDED, time.time())
    os.chown(file.path, 65_534, 65_534)
    assert scheduler.session() == UNTOUCHED


@pytest.mark.parametrize(
    "text", ["GPUYARD[]", "GPUYARD[x]", "GPUYARD[1", "GPUYARD[-1]", "GPUYARD[0]", "GPUYARD[99999999999999999999]", "gpuyard[1]"]
)
def test_a_tag_that_is_no_number_is_none(built, tmp_path, text):
    DecisionFile(tmp_path / "decisions").publish({1: ("h1",)}, time.time())
    scheduler = Mbschd(built, tmp_path / "decisions", (text,))
    assert scheduler.session() == {1: ALL}
    scheduler.close()


def test_it_is_built_as_the_makefile_says(built, tmp_path):
    """With all warnings as errors, and the entry points that LSF asks for."""
    for name in ("Makefile", "schmod_gpuyard.c", "decisions.c", "decisions.h", "lssched_facts.h"):
        shutil.copy(PLUGIN / name, tmp_path)
    if shutil.which("make") is None:
        pytest.skip("no make")
    subprocess.run(["make", "-s", "OWNER=12", "DECISIONS=/run/x"], cwd=tmp_path, check=True)
    data = (tmp_path / "schmod_gpuyard.so").read_bytes()
    phases = ("version", "init", "pre_proc", "match_limit", "order_alloc", "post_proc", "finalize")
    assert all(f"sched_{name}".encode() in data for name in phases)
    assert b"/run/x" in data


def test_what_does_not_fit_is_refused():
    with pytest.raises(UsageError, match="does not fit into 63 bytes"):
        decision_bytes({1: ("h" * 64,)}, 1, 0.0, PublishSettings())
    with pytest.raises(UsageError, match="the plugin reads"):
        decision_bytes(dict.fromkeys(range(1, 300_000), ()), 1, 0.0, PublishSettings())
