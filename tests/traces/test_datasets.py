"""Fetching by name, over real HTTP from a server in this process."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
import resource
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli.main import run
from gpuyard.errors import DataError, UnknownNameError, UsageError
from gpuyard.traces import DATASETS, Dataset, fetch, load_workload
from gpuyard.traces.datasets import cache_folder

pytest.importorskip("pooch")

BODY = ("; MaxProcs: 64\n" + "".join(f"{k} {k} 0 60 4 -1 -1 4 120 -1 1 7 -1 -1 2 -1 -1 -1\n" for k in range(1, 5001))).encode()
ETAG = '"v1"'
Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers by the server's list of behaviours, one per request, the last one for ever."""

    server: Any

    def do_GET(self) -> None:
        self.server.seen.append(dict(self.headers))
        behaviours: list[Answer] = self.server.behaviours
        (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0])(self)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def begin(self, status: int, length: int | None, **headers: str) -> None:
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def cut(self) -> None:
        """Drop the connection as a broken network does."""
        self.wfile.flush()
        self.connection.close()


def proper(handler: Handler) -> None:
    """The whole file, or the part that was asked for."""
    asked = handler.headers.get("Range")
    if asked is None or handler.headers.get("If-Range", ETAG) != ETAG:
        handler.begin(200, len(BODY), ETag=ETAG)
        handler.wfile.write(BODY)
        return
    start = int(asked.removeprefix("bytes=").removesuffix("-"))
    if start >= len(BODY):
        handler.begin(416, 0, Content_Range=f"bytes */{len(BODY)}")
        return
    handler.begin(206, len(BODY) - start, ETag=ETAG, Content_Range=f"bytes {start}-{len(BODY) - 1}/{len(BODY)}")
    handler.wfile.write(BODY[start:])


def without_ranges(handler: Handler) -> None:
    handler.begin(200, len(BODY))
    handler.wfile.write(BODY)


def cut_after(size: int) -> Answer:
    def answer(handler: Handler) -> None:
        handler.begin(200, len(BODY), ETag=ETAG)
        handler.wfile.write(BODY[:size])
        handler.cut()

    return answer


def status(code: int, **headers: str) -> Answer:
    return lambda handler: handler.begin(code, 0, **headers)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviours: list[Answer] = [proper]
        self.seen: list[dict[str, str]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone away is no news here."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/log.swf"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """A server, a cache folder, and the dataset `sample` there."""
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("GPUYARD_DATA", str(tmp_path / "cache"))
        monkeypatch.setattr(DATASETS, "_things", dict(DATASETS.items()))
        register(made.url)
        yield made
        made.shutdown()
        thread.join()


def register(url: str, body: bytes = BODY, suffix: str = ".swf", name: str = "sample", size: int | None = None) -> None:
    DATASETS._things[name] = Dataset(
        name, "a log", url, hashlib.sha256(body).hexdigest(), len(body) if size is None else size, "CC0", "nobody", suffix
    )


def kept() -> set[str]:
    return {entry.name for entry in cache_folder().iterdir()}


def refused(**options: Any) -> str:
    with pytest.raises(DataError) as caught:
        fetch("sample", pause=0.0, **options)
    assert "\n" not in str(caught.value)
    assert "sample.swf" not in kept()
    return str(caught.value)


def test_fetched_once(server: Server) -> None:
    heard: list[int] = []
    path = fetch("sample", progress=heard.append)
    assert path == cache_folder() / "sample.swf"
    assert path.read_bytes() == BODY
    assert kept() == {"sample.swf"}
    assert heard[-1] == len(BODY)
    assert heard == sorted(heard)
    assert fetch("sample") == path
    assert len(server.seen) == 1
    assert server.seen[0]["Accept-Encoding"] == "identity"


def test_a_workload_by_its_name(server: Server) -> None:
    workload = load_workload("dataset:sample")
    assert len(workload) == 5000
    assert workload.name == "dataset:sample"
    assert workload.machines[0].gpus == 64
    assert len(load_workload("dataset:sample", processors="requested")) == 5000


def test_a_damaged_file_in_the_cache_is_fetched_again(server: Server) -> None:
    fetch("sample").write_bytes(b"damaged")
    assert fetch("sample").read_bytes() == BODY
    assert len(server.seen) == 2


def test_a_cut_connection_is_taken_up_where_it_broke(server: Server) -> None:
    server.behaviours = [cut_after(100_000), proper]
    assert fetch("sample", pause=0.0).read_bytes() == BODY
    assert "Range" not in server.seen[0]
    received = int(server.seen[1]["Range"].removeprefix("bytes=").removesuffix("-"))
    assert 0 < received <= 100_000
    assert server.seen[1]["If-Range"] == ETAG
    assert kept() == {"sample.swf"}


def test_the_next_call_goes_on_too(server: Server) -> None:
    server.behaviours = [cut_after(100_000), status(503)]
    message = refused()
    assert "the server says 503" in message
    assert kept() == {"sample.swf.part", "sample.swf.part.etag"}
    have = (cache_folder() / "sample.swf.part").stat().st_size
    assert (cache_folder() / "sample.swf.part").read_bytes() == BODY[:have]
    server.behaviours = [proper]
    assert fetch("sample").read_bytes() == BODY
    assert server.seen[-1]["Range"] == f"bytes={have}-"
    assert kept() == {"sample.swf"}


def test_interrupted_by_the_user(server: Server) -> None:
    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("sample", progress=interrupt)
    assert kept() == {"sample.swf.part", "sample.swf.part.etag"}
    assert fetch("sample").read_bytes() == BODY
    assert "Range" in server.seen[-1]


def test_a_server_that_ignores_ranges(server: Server) -> None:
    server.behaviours = [cut_after(100_000), without_ranges]
    assert fetch("sample", pause=0.0).read_bytes() == BODY
    assert "Range" in server.seen[1]


def test_a_file_that_changed_meanwhile_is_sent_as_a_whole(server: Server) -> None:
    cache_folder().mkdir()
    (cache_folder() / "sample.swf.part").write_bytes(b"other" * 10)
    (cache_folder() / "sample.swf.part.etag").write_text('"v0"')
    assert fetch("sample").read_bytes() == BODY
    assert server.seen[0]["If-Range"] == '"v0"'


@pytest.mark.parametrize("code", [416, 206])
def test_a_range_that_the_server_does_not_have(server: Server, code: int) -> None:
    cache_folder().mkdir()
    (cache_folder() / "sample.swf.part").write_bytes(BODY[:50])
    server.behaviours = [status(code, Content_Range="bytes 7-8/9"), proper]
    assert fetch("sample", pause=0.0).read_bytes() == BODY
    assert "Range" not in server.seen[1]


def test_a_whole_part_needs_no_request(server: Server) -> None:
    cache_folder().mkdir()
    (cache_folder() / "sample.swf.part").write_bytes(BODY)
    assert fetch("sample").read_bytes() == BODY
    assert server.seen == []


def test_a_part_that_is_too_long_is_thrown_away(server: Server) -> None:
    cache_folder().mkdir()
    (cache_folder() / "sample.swf.part").write_bytes(BODY + b"more")
    assert fetch("sample").read_bytes() == BODY
    assert "Range" not in server.seen[0]


def test_a_wrong_checksum_is_refused_and_removed(server: Server) -> None:
    register(server.url, BODY[:-1] + b" ")
    assert "has another checksum and was removed" in refused()
    assert kept() == set()
    register(server.url)
    assert fetch("sample").read_bytes() == BODY


def test_a_wrong_part_is_found_out(server: Server) -> None:
    cache_folder().mkdir()
    (cache_folder() / "sample.swf.part").write_bytes(b"x" * 50)
    assert "another checksum" in refused()
    assert kept() == set()


@pytest.mark.parametrize("code", [404, 403, 410])
def test_what_is_not_there(server: Server, code: int) -> None:
    server.behaviours = [status(code)]
    assert f"{server.url}: the server says {code}" in refused()
    assert len(server.seen) == 1


def test_a_server_in_trouble_is_asked_again(server: Server) -> None:
    server.behaviours = [status(503), status(429), proper]
    assert fetch("sample", pause=0.0).read_bytes() == BODY
    server.behaviours, server.seen = [status(500)], []
    (cache_folder() / "sample.swf").unlink()
    assert "the server says 500" in refused()
    assert len(server.seen) == 3


def test_too_large(server: Server) -> None:
    register(server.url, BODY, size=1000)
    assert "has more than 1,000 bytes instead of 1,000" in refused()
    assert (cache_folder() / "sample.swf.part").stat().st_size == 0


def test_too_large_without_saying_so(server: Server) -> None:
    def endless(handler: Handler) -> None:
        handler.begin(200, None)
        try:
            while True:
                handler.wfile.write(b"x" * 65536)
        except OSError:
            handler.close_connection = True

    server.behaviours = [endless]
    assert "has more than" in refused()
    assert (cache_folder() / "sample.swf.part").stat().st_size == 0


def test_too_small(server: Server) -> None:
    register(server.url, BODY, size=len(BODY) + 1)
    assert f"has {len(BODY):,} bytes instead of {len(BODY) + 1:,}" in refused()


def test_a_server_that_stalls(server: Server) -> None:
    release = threading.Event()

    def stall(handler: Handler) -> None:
        handler.begin(200, len(BODY), ETag=ETAG)
        handler.wfile.write(BODY[:70_000])
        handler.wfile.flush()
        release.wait(60)

    def silent(handler: Handler) -> None:
        release.wait(60)

    server.behaviours = [stall, silent]
    message = refused(timeout=0.2)
    release.set()
    assert "broke off after" in message
    assert "run it again: it continues from there" in message
    assert (cache_folder() / "sample.swf.part").stat().st_size > 0
    server.behaviours = [proper]
    assert fetch("sample").read_bytes() == BODY


def test_nobody_answers(server: Server) -> None:
    with Server() as other:
        closed = other.url
    register(closed)
    assert "broke off after 0 of" in refused()
    assert "is there a network?" in refused()


def test_redirects(server: Server) -> None:
    server.behaviours = [status(302, Location="/elsewhere"), proper]
    assert fetch("sample").read_bytes() == BODY


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"])
def test_redirects_away_from_http(server: Server, target: str) -> None:
    server.behaviours = [status(302, Location=target)]
    message = refused()
    assert "not http or https" in message or "302" in message
    assert len(server.seen) == 1


def test_a_loop_of_redirects(server: Server) -> None:
    server.behaviours = [status(302, Location="/log.swf")]
    assert "302" in refused()


def test_an_address_that_is_not_http(server: Server) -> None:
    register("file:///etc/passwd")
    with pytest.raises((DataError, UsageError)):
        fetch("sample")


def test_an_encoding_that_was_not_asked_for(server: Server) -> None:
    def zipped(handler: Handler) -> None:
        body = gzip.compress(BODY)
        handler.begin(200, len(body), Content_Encoding="gzip")
        handler.wfile.write(body)

    server.behaviours = [zipped]
    assert "comes as 'gzip'" in refused()


def test_two_at_once(server: Server) -> None:
    cache_folder().mkdir()
    with (cache_folder() / "sample.swf.part").open("ab") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        assert "another process is fetching" in refused()


def test_a_full_disk_is_told_at_once(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        message = refused()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot be written: File too large" in message
    assert len(server.seen) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(server: Server, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="cannot be written"):
        fetch("sample")


def test_a_cache_that_is_a_file(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("GPUYARD_DATA", str(tmp_path / "taken"))
    with pytest.raises(DataError, match="cannot be written: .*hint: set GPUYARD_DATA"):
        fetch("sample")


def test_an_unknown_name() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'philly'"):
        load_workload("dataset:phily")


def test_on_the_command_line(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", "fetch", "sample", "-f", "json"]) == 0
    out, err = capsys.readouterr()
    (record,) = json.loads(out)
    assert record["file"] == str(cache_folder() / "sample.swf")
    assert "licence: CC0; cite: nobody" in err
    assert run(["trace", "info", "dataset:sample", "-f", "json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)
    assert (data["format"], data["jobs"], data["name"]) == ("swf", 5000, "dataset:sample")
    assert run(["simulate", "dataset:sample", "--metric", "wait"]) == 0
    assert len(server.seen) == 1
    capsys.readouterr()
    server.behaviours = [status(404)]
    (cache_folder() / "sample.swf").unlink()
    assert run(["trace", "fetch", "sample"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "the server says 404" in err


# ── the registry ──

OPENB = ("default", "gpuspec33", "multigpu50", "gpushare40", "cpu050")
SHARED = {
    "philly": "philly/philly_jobs_rfold.csv.gz",
    "philly-vc": "philly/philly_jobs_vc.csv.gz",
    "helios-venus": "helios/helios_venus_gpu_jobs.csv.gz",
    "pai2020-sample": "alibaba/pai2020_gpu_tasks_sample.csv.gz",
    "lingjun2023": "alibaba/lingjun2023_jobs_rfold.csv",
    "dlrm2025": "alibaba/dlrm2025_instances.csv.gz",
    "genai2026": "alibaba/genai2026_lora_request_trace.csv.gz",
    "gavel-msr": "throughput/gavel_msr_vc103959_seed0.trace.gz",
    "rubick-base": "throughput/rubick_workload_base.csv",
    "kth-sp2": "swf/KTH-SP2-1996-2.1-cln.swf.gz",
    "lanl-cm5": "swf/LANL-CM5-1994-4.1-cln.swf.gz",
    "hpc2n": "swf/HPC2N-2002-2.1-cln.swf.gz",
    "nasa-ipsc": "swf/NASA-iPSC-1993-3.1-cln.swf.gz",
    "ctc-sp2-easy": "swf/CTC-SP2-easy-resimulated.swf.gz",
    "sdsc-sp2-easy": "swf/SDSC-SP2-easy-resimulated.swf.gz",
    "lublin-256": "swf/lublin_256.swf.gz",
    "xdmod-phillips": "slurm/xdmod_phillips_sacct.txt.gz",
    "xdmod-pozidriv": "slurm/xdmod_pozidriv_sacct.txt.gz",
} | {f"openb-{kind}": f"alibaba/openb2023_pod_list_{kind}.csv.gz" for kind in OPENB}


@pytest.mark.parametrize("name", list(DATASETS))
def test_every_checksum_is_that_of_a_copy(shared: Path, name: str) -> None:
    """The copies beside the repository are the files themselves, some packed with gzip."""
    found = DATASETS[name]
    raw = (shared / "traces" / SHARED[name]).read_bytes()
    bodies = {hashlib.sha256(body).hexdigest(): len(body) for body in (raw, gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)}
    assert bodies.get(found.sha256) == found.size
    assert found.url.endswith(".gz") == (found.sha256 == hashlib.sha256(raw).hexdigest() and raw[:2] == b"\x1f\x8b")


@pytest.mark.parametrize("name", list(DATASETS))
def test_every_dataset_says_where_it_is_from(name: str) -> None:
    found = DATASETS[name]
    assert found.url.startswith("https://raw.githubusercontent.com/")
    assert len(found.url.split("/")[5]) == 40
    assert all((found.title, found.licence, found.citation, found.suffix.startswith(".")))
    assert found.url.endswith(found.suffix)
