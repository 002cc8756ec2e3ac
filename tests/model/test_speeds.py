"""Measured speed tables, given to clusters and workloads."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import DataError, UsageError
from gpuyard.model.cluster_file import cluster_from_dict, cluster_to_dict, load_cluster
from gpuyard.model.speeds import fitting, load_speeds, load_throughputs, speeds_text, with_speeds
from gpuyard.model.workload import Workload

GAVEL = {
    "k80": {"('ResNet-50 (batch size 64)', 1)": {"null": 0.5}, "('ResNet-50 (batch size 64)', 4)": {"null": 0.0}},
    "v100": {
        "('ResNet-50 (batch size 64)', 1)": {"null": 4.0, "('LM', 1)": [1.0, 2.0]},
        "('ResNet-50 (batch size 64)', 4)": {"null": 12.0},
        "('A3C', 1)": {"null": 0},
    },
    "k80_unconsolidated": {"('ResNet-50 (batch size 64)', 1)": {"null": 9.0}},
}
SIA = """gpu_type,model,table,placement,num_nodes,num_replicas,local_bsz,step_time,sync_time
azure,bert,placements,1,,,4,0.2,0
azure,bert,placements,1,,,8,0.4,0
azure,bert,placements,2,,,4,9,0
rtx,bert,placements,1,,,4,0.4,0
rtx,bert,placements,1,,,8,1.6,0
rtx,bert,placements,1,,,16,99,0
dgx,bert,placements,1,,,4,77,0
dgx-ext,bert,placements,2,,,4,4.5,0
rtx,bert,scalability,,1,1,4,55,0
rtx,gpt,placements,44,,,1,1,0
dgx-ext,gpt,placements,44,,,1,0.5,0
"""


def _write(folder: Path, text: str, name: str = "table") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_gavel_throughputs(tmp_path: Path) -> None:
    path = _write(tmp_path, json.dumps(GAVEL))
    assert load_speeds(path) == {
        "ResNet-50 (batch size 64)": {"k80": 0.125, "v100": 1.0},
        "ResNet-50 (batch size 64), 4 GPUs": {"k80": 0.0, "v100": 1.0},
    }
    assert load_speeds(path, "k80") == {"ResNet-50 (batch size 64)": {"k80": 1.0, "v100": 8.0}}
    assert load_throughputs(path)["v100"]["ResNet-50 (batch size 64)", 4] == 12.0
    zipped = tmp_path / "table.json.gz"
    zipped.write_bytes(gzip.compress(json.dumps(GAVEL).encode()))
    assert load_speeds(zipped) == load_speeds(path)


def test_step_times(tmp_path: Path) -> None:
    path = _write(tmp_path, SIA)
    speeds = load_speeds(path)
    assert speeds == {"bert": {"v100": 1.0, "rtx2080ti": pytest.approx((0.5 * 0.25) ** 0.5), "a100-40gb": pytest.approx(2.0)}}
    assert load_speeds(path, "a100-40gb")["gpt"] == {"rtx2080ti": pytest.approx(0.5), "a100-40gb": 1.0}


def test_one_type_is_its_own_reference(tmp_path: Path) -> None:
    text = "model,exec_plan,placement,cpu_threads,iter_time\nbert,ga,1,,0.5\nbert,ga,2,,0\nvit,ga,2,,0.25\n"
    assert load_speeds(_write(tmp_path, text)) == {"bert": {"a800": 1.0}, "vit": {"a800": 1.0}}


def test_a_plain_table(tmp_path: Path) -> None:
    path = _write(tmp_path, '{"lm": {"a100": 2.0, "v100": 0.5}, "cv": {"v100": 3}}')
    assert load_speeds(path) == {"lm": {"a100": 2.0, "v100": 0.5}, "cv": {"v100": 3.0}}
    assert load_speeds(path, "a100") == {"lm": {"a100": 1.0, "v100": 0.25}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("a,b\n1,2\n", "is not a speed table"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "is not a speed table"),
        ("{}", "is not a speed table"),
        ('{"lm": 3}', "is not a speed table"),
        ('{"lm": {"a100": -1}}', "lm: a100 = '-1' is not a number from 0"),
        ('{"lm": {"a100": NaN}}', "is not a number from 0"),
        ('{"lm": {"a100": true}}', "is not a number from 0"),
        ('{"lm": {"a100": "x"}}', "is not a number from 0"),
        ('{"v100": {"ResNet": {"null": 1}}}', "'ResNet' is not .'JOB TYPE', GPUS."),
        ('{"v100": {"(\'A\', 1)": {"null": []}}}', "is not a number from 0"),
        ('{"v100": {"(\'A\', 1)": {"null": 0}}}', "no class was measured on the reference type"),
        ('{"k80": {"(\'A\', 1)": {"null": 1}}, "p100": {"(\'A\', 1)": {"null": 1}}}', "unknown reference type 'v100'"),
        (SIA.replace("0.2,0", "x,0"), "table:2: could not convert"),
        (SIA.replace("0.2,0", "-3,0"), "table:2: '-3' is not a time"),
        (SIA.replace(",,,4,0.2,0", ""), "table:2: "),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(DataError, match=says) as caught:
        load_speeds(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_hostile_files_are_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(b" " * 17_000_000))
    with pytest.raises(DataError, match="more than 16,000,000 bytes"):
        load_speeds(bomb)
    for content in (b"\x1f\x8bxx", b"\xff\xfe{}", gzip.compress(json.dumps(GAVEL).encode())[:-20]):
        bomb.write_bytes(content)
        with pytest.raises(DataError):
            load_speeds(bomb)
    for path, says in ((tmp_path, "is a directory, not a file"), (tmp_path / "absent", "absent: no such file")):
        with pytest.raises(DataError, match=says):
            load_speeds(path)


def test_the_text_may_name_a_reference(tmp_path: Path) -> None:
    path = _write(tmp_path, json.dumps(GAVEL))
    assert speeds_text(f"{path}:reference=k80")["ResNet-50 (batch size 64)"]["v100"] == 8.0
    for text in (":reference=k80", f"{path}:reference="):
        with pytest.raises(UsageError, match="is not FILE or FILE:reference=TYPE"):
            speeds_text(text)


def test_a_cluster_takes_the_rows_of_its_types() -> None:
    cluster = cluster_from_dict({"nodes": [{"gpus": 8, "type": "v100"}, {"gpus": 8, "type": "k80"}], "speed": {"lm": {"k80": 0.3}}})
    made = with_speeds(cluster, {"lm": {"v100": 1.0, "k80": 0.1, "p100": 0.5}, "cv": {"v100": 2.0, "k80": 0.0}, "rl": {"p100": 1.0}})
    assert {name: dict(row) for name, row in made.speed.items()} == {"lm": {"v100": 1.0, "k80": 0.3}, "cv": {"v100": 2.0}}
    assert cluster_from_dict(cluster_to_dict(made)) == made


def work(classes: tuple[str, ...], types: tuple[str, ...], rows: list[tuple[int, int]]) -> Workload:
    columns: dict[str, Any] = {"submit": range(len(rows)), "job_class": [c for c, _ in rows], "gpu_type": [t for _, t in rows]}
    return Workload.build({k: list(v) for k, v in columns.items()}, [1.0] * len(rows), classes=classes, gpu_types=types)


def test_jobs_are_kept_off_types_on_which_they_do_not_fit() -> None:
    table = {"big": {"k80": 0.0, "v100": 1.0, "p100": 0.5}, "small": {"k80": 0.1, "v100": 1.0}}
    given = work(("small", "big"), ("", "k80", "k80|v100"), [(0, 0), (1, 0), (1, 1), (1, 2), (0, 1)])
    made = fitting(given, table, ("k80", "v100", "t4"))
    labels = [made.jobs.gpu_types[k] for k in made.jobs.gpu_type]
    assert labels == ["", "v100|t4|p100", "none", "v100", "k80"]
    same = work(("small",), ("",), [(0, 0)])
    assert fitting(same, table, ("k80",)) is same


def test_a_cluster_file_may_name_a_table(tmp_path: Path) -> None:
    _write(tmp_path, json.dumps({"lm": {"v100": 1.0, "t4": 0.25, "p100": 0.5}}), "measured.json")
    nodes = '\n[[nodes]]\ngpus = 8\ntype = "t4"\n\n[speed.cv]\nt4 = 0.7\n'
    cluster = load_cluster(str(_write(tmp_path, 'speeds = "measured.json"' + nodes, "lab.toml")))
    assert {name: dict(row) for name, row in cluster.speed.items()} == {"cv": {"t4": 0.7}, "lm": {"t4": 0.25}}
    cluster = load_cluster(str(_write(tmp_path, 'speeds = "measured.json:reference=p100"' + nodes, "lab.toml")))
    assert cluster.speed["lm"]["t4"] == 0.5
    for line, says in (("speeds = 3", "speeds is not a text"), ('speeds = "absent.json"', "absent.json: no such file")):
        with pytest.raises(DataError, match=says):
            load_cluster(str(_write(tmp_path, line + nodes, "lab.toml")))
    _write(tmp_path, json.dumps({"lm": {"t4": 0}}), "measured.json")
    with pytest.raises(DataError, match="'lm' does not fit on t4; hint: give the table with --speeds"):
        load_cluster(str(_write(tmp_path, 'speeds = "measured.json"' + nodes, "lab.toml")))


def test_real_tables(shared: Path) -> None:
    folder = shared / "traces" / "throughput"
    gavel = load_speeds(folder / "gavel_simulation_throughputs.json.gz")
    assert len(gavel) == 83
    assert gavel["ResNet-50 (batch size 64)"]["k80"] == pytest.approx(0.619 / 4.395, rel=1e-3)
    assert gavel["ResNet-50 (batch size 128), 4 GPUs"]["k80"] == 0.0
    sia = load_speeds(folder / "sia_step_times_by_gpu.csv.gz")
    assert set(sia) == {"bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"}
    assert set(sia["bert"]) == {"v100", "a100-40gb", "rtx6000", "rtx2080ti"}
    assert load_speeds(folder / "pollux_step_times_aws.csv.gz")["bert"] == {"t4": 1.0}
    assert load_speeds(folder / "rubick_a800_iter_times.csv")["vit"] == {"a800": 1.0}
    assert "LM (batch size 80)" in load_speeds(folder / "gavel_physical_cluster_throughputs.json.gz", "p100")
