"""Public traces by name, pinned to a commit and a checksum, and downloaded once into a cache folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpuyard.errors import DataError, UsageError
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


DATASETS: Registry[Dataset] = Registry("dataset")


def cache_folder() -> Path:
    """Return the folder for downloaded files: $GPUYARD_DATA, or `gpuyard` in the user's cache."""
    given = os.environ.get(FOLDER)
    if given:
        return Path(given).expanduser()
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


# ── the datasets ──

_PHILLY = "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads, USENIX ATC 2019"
_HELIOS = "Hu et al., Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters, SC 2021"
_PAI = "Weng et al., MLaaS in the Wild, NSDI 2022"
_OPENB = "Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent, USENIX ATC 2023"
_ARCHIVE = "Parallel Workloads Archive; acknowledge the people named in the log's header"


def _github(repository: str, commit: str, path: str) -> str:
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{quote(path)}"


def _add(name: str, title: str, where: tuple[str, str, str], sha256: str, size: int, licence: str, citation: str) -> None:
    """Register a file of a GitHub repository; its path gives the suffix."""
    suffix = "".join(Path(where[2]).suffixes[-2:]) if where[2].endswith(".gz") else Path(where[2]).suffix
    DATASETS.add(name, Dataset(name, title, _github(*where), sha256, size, licence, citation, suffix))


_ELASTICFLOW = ("pkusys/ElasticFlow", "04a0109a6acdd7d89f4cb31b6a6a7a128bee6bb0")
_RFOLD = ("shuoshuc/RFold", "b98145539be208ceae371ecaa0464e345c90234b")
_GPU_SCHEDULER = ("mystous/gpu_scheduler", "e432905d20fe6d73ff4d3c88f51881eb3d95feef")
_ALIBABA = ("alibaba/clusterdata", "7a6c496e4f4b6ce6150be8f881cb051bf2abff42")
_XDMOD = ("ubccr/xdmod", "33015b5d1ec986be955ab0ed1c04edfef5e67523")
_SWF = ("fernandodeperto/swf", "1e9c785dae314736cb7842973dbddf36ca04c30a")
_CLOUDSIM = ("SeriousCorgi/CloudSim-Plus-Deadline-Awareness", "f85f2f15e6c5c4a7e46b8c0a64f514f52d236fc6")
_CLOUDSIM_SWF = "cloudsim-plus-examples/src/main/resources/workload/swf"
_PREDICTSIM = ("dinesh121991/predictsim", "2e5e2d1b8789e9a8feda88504cbdc7ae78e5f89b")
_RESIMULATED = "simulations/res_easy_backfill_scheduler_None_None.swf.gz"

_add(
    "philly", "Microsoft Philly 2017, 111,549 jobs over 129 days", (*_RFOLD, "WorkloadGen/data/philly_trace.csv"),
    "ccd6e87c569d6b5e70caae2c19b77ca230362c1358da1c1b896dd49c9f762ae5", 3_705_879, "CC-BY-4.0 (data), MIT (copy)", _PHILLY,
)  # fmt: skip
_add(
    "philly-vc", "Microsoft Philly 2017, 82,247 jobs with their virtual clusters",
    (*_ELASTICFLOW, "pollux/pollux_simulator/traces/philly.csv"),
    "ebffb3dd1589bdf4e7bcd74496201c5ded1d557d498ee14f560463f37ec353da", 3_444_496, "CC-BY-4.0 (data), Apache-2.0 (copy)", _PHILLY,
)  # fmt: skip
_add(
    "helios-venus", "SenseTime Helios, cluster Venus 2020, 125,303 GPU jobs", (*_GPU_SCHEDULER, "sim/helios_trace.csv"),
    "dd044eace2854471dbb87b59d31efd7bba652cb782c039b5166e8a3ef2aaeae2", 4_165_579, "CC-BY-4.0 (data), none stated (copy)", _HELIOS,
)  # fmt: skip
_add(
    "pai2020-sample", "Alibaba PAI 2020, a random sample of 60,105 GPU tasks", (*_GPU_SCHEDULER, "sim/alibaba_trace_sub.csv"),
    "9577504848fcf4fd2313250a0245859588a22fbb8a4ae271f555cdec0102dae2", 3_944_512, "CC-BY-4.0 (data), none stated (copy)", _PAI,
)  # fmt: skip
_OPENB_LISTS = {
    "default": ("as observed", "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8", 575_468),
    "gpuspec33": ("a third ask for GPU types", "eca4f746db1e5b25864ad021b55ece3943e101a3ebd4574d09dcb95c46117652", 587_467),
    "multigpu50": ("half the GPU demand from gangs", "206f2f5959db30ecb7c44e7f13197c8ec50b7a35558ad3777cc3662ef0fe5373", 297_219),
    "gpushare40": ("40 % of the GPU demand from shares", "d83ce79a4eb6987524bedbb0c65e41aed3a36bf6c1b78b86234c3687a07e1d40", 572_662),
    "cpu050": ("half as many CPU pods", "747f43247bffc2b0bb081d7f61f0705ca8d390dafc0b647e642c92f3baf3ba1e", 525_811),
}
for _name, (_about, _sha256, _size) in _OPENB_LISTS.items():
    _place = (*_ALIBABA, f"cluster-trace-gpu-v2023/csv/openb_pod_list_{_name}.csv")
    _add(f"openb-{_name}", f"Alibaba openb 2023, pods with GPU shares: {_about}", _place, _sha256, _size, "none stated", _OPENB)
_add(
    "lingjun2023", "Alibaba Lingjun 2023, 2,498 training jobs of up to 744 GPUs", (*_RFOLD, "WorkloadGen/data/crux.csv"),
    "6ee3148ca9b84854cb17518623bfce98202fb1c23d5f6f8e032650d18905318e", 75_194, "Apache-2.0 (data), MIT (copy)",
    "Cao et al., Crux: GPU-Efficient Communication Scheduling for Deep Learning Training, SIGCOMM 2024",
)  # fmt: skip
_add(
    "dlrm2025", "Alibaba 2025, 23,871 instances of recommendation models",
    (*_ALIBABA, "cluster-trace-gpu-v2025/disaggregated_DLRM_trace.csv"),
    "fb17bc4b3f412d5280f70f04a1bdf2adfc4429d1e61237a5b106e86206414295", 2_118_900, "none stated", "Alibaba cluster trace program, 2025",
)  # fmt: skip
_add(
    "genai2026", "Alibaba 2026, 26,823 requests for images", (*_ALIBABA, "cluster-trace-v2026-GenAI/lora_request_trace.csv"),
    "263fb88f1095f62d360cf89ded8cfc24fa2c5d111c1b16e7aaa9ccbfc4b37d78", 2_012_418, "none stated", "Alibaba cluster trace program, 2026",
)  # fmt: skip
_add(
    "gavel-msr", "986 jobs of a Philly virtual cluster with models assigned by Gavel",
    ("stanford-futuredata/gavel", "c4fa40097339e9608ab71fd64c8bdea96a5e4a4c", "scheduler/traces/msr/seed=0/103959.trace"),
    "993c5d59d0b7447597e252b900670356623bda10dad0a4487588e3d839523442", 186_671, "MIT",
    "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads, OSDI 2020",
)  # fmt: skip
_add(
    "rubick-base", "406 training jobs of named models, constructed for Rubick",
    ("AlibabaPAI/reconfigurable-dl-scheduler", "80e85248c65c1ae231e2cf8bbfe0918b7af45c98", "simulator/workloads/workload-base.csv"),
    "1ff1aa98a914ddf44b7ac693d3913584c25d14d9f386a56a16919c1c5bce3cda", 20_979, "Apache-2.0", "AlibabaPAI, reconfigurable-dl-scheduler",
)  # fmt: skip
_add(
    "kth-sp2", "KTH IBM SP2 1996, 100 processors, 28,476 jobs", (*_CLOUDSIM, f"{_CLOUDSIM_SWF}/KTH-SP2-1996-2.1-cln.swf.gz"),
    "3e152f201fd2e96808a735bced6ea6eb0bb07fdc447689cafb0750d87b264c0b", 411_455, "none stated (data), GPL-3.0 (copy)", _ARCHIVE,
)  # fmt: skip
_add(
    "lanl-cm5", "LANL CM-5 1994, 1,024 processors, 122,060 jobs", (*_CLOUDSIM, f"{_CLOUDSIM_SWF}/LANL-CM5-1994-4.1-cln.swf.gz"),
    "71ff3dfa301b3ee1bd30ebc63c5363b5e8ec488e75f1f9398aa46d485ef23c3c", 2_138_864, "none stated (data), GPL-3.0 (copy)", _ARCHIVE,
)  # fmt: skip
_add(
    "hpc2n", "HPC2N Seth 2002, 240 processors, 202,876 jobs", (*_SWF, "HPC2N-2002-2.1-cln.swf.gz"),
    "e56a97045de773f2a395acaf74cb04e6e3393b9c8c5ae12b542b5de93bb04838", 2_997_863, "none stated (data), GPL-3.0 (copy)", _ARCHIVE,
)  # fmt: skip
_add(
    "nasa-ipsc", "NASA iPSC/860 1993, 128 processors, 18,239 jobs",
    ("cloudsimplus/cloudsimplus-examples", "4394086de1dee68fd5d96cf818f92410bb660dfd",
     "src/main/resources/workload/swf/NASA-iPSC-1993-3.1-cln.swf.gz"),
    "5589ae9b2fb78e3bf92de097497cf33a91607de1ad54563e43533f7827597f29", 207_976, "none stated (data), GPL-3.0 (copy)", _ARCHIVE,
)  # fmt: skip
_add(
    "ctc-sp2-easy", "CTC IBM SP2, 338 processors, 77,199 jobs; waits are of an EASY simulation",
    (*_PREDICTSIM, f"experiments/data/CTC-SP2/{_RESIMULATED}"),
    "eeb47188733e4532d626e279f1597bf9f49af8c0e1c8a3f420b0c7e1b79edba2", 997_705, "none stated", _ARCHIVE,
)  # fmt: skip
_add(
    "sdsc-sp2-easy", "SDSC IBM SP2, 128 processors, 54,006 jobs; waits are of an EASY simulation",
    (*_PREDICTSIM, f"experiments/data/SDSC-SP2/{_RESIMULATED}"),
    "5a05aeb8b04806d679ff82439d8b020344c01b011a98b97ec02a61c1fc445a59", 669_346, "none stated", _ARCHIVE,
)  # fmt: skip
_add(
    "lublin-256", "10,000 jobs of the Lublin model for 256 processors, as published with RLScheduler",
    ("DIR-LAB/deep-batch-scheduler", "cd433e3d62a01705f255bd48cb55b393862800e7", "data/lublin_256.swf"),
    "a394ab3d81179ebcf645a1cbd593a60b6dff7f11a510e1e6285c45f43310c962", 649_089, "none stated",
    "Zhang et al., RLScheduler: An Automated HPC Batch Job Scheduler Using Reinforcement Learning, SC 2020",
)  # fmt: skip
for _name, _sha256, _size in (
    ("phillips", "adba9e068a38e331fa04dd4006e54a37dcc24655bce71790e8e15c1dfeeb3c8c", 1_471_528),
    ("pozidriv", "0cfff22f4b163c958ed3625c4a3c4a6a603ed36f66d3ac5b07956277a8c58a7c", 4_051_893),
):
    _place = (*_XDMOD, f"tests/artifacts/xdmod/referencedata/{_name}.log")
    _add(f"xdmod-{_name}", f"sacct accounting of ten days, anonymised ({_name})", _place, _sha256, _size, "LGPL-3.0", "Open XDMoD")
