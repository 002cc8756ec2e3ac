"""A small C library in the place of the NVIDIA driver's, which reads a file at every call; for processes that are started by tests.

The file holds `gpu UUID NAME TOTAL_MIB USED_MIB UTILISATION MILLIWATTS CELSIUS MILLIJOULES STATE` lines (STATE: 0 good, 15 lost, 999
unknown error; MILLIJOULES -1: no counter) and `process GPU PID MIB` lines. Without the file the driver is not loaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct {
  char uuid[96], name[96]; unsigned long long total, used; unsigned util, milliwatts, celsius; long long millijoules; int state;
} gpu;
typedef struct { int gpu; unsigned pid; unsigned long long mib; } process;
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } info;
static gpu gpus[64]; static process processes[256]; static int count, held;
static int load(void) {
  char line[512]; FILE *file = fopen(getenv("FAKE_NVML") ? getenv("FAKE_NVML") : "", "r");
  count = held = 0;
  if (!file) return 9;  // driver not loaded
  while (fgets(line, sizeof line, file)) {
    gpu g; process p;
    int words = sscanf(line, "gpu %95s %95s %llu %llu %u %u %u %lld %d", g.uuid, g.name, &g.total, &g.used,
                       &g.util, &g.milliwatts, &g.celsius, &g.millijoules, &g.state);
    if (words == 9) gpus[count++] = g;
    if (sscanf(line, "process %d %u %llu", &p.gpu, &p.pid, &p.mib) == 3) processes[held++] = p;
  }
  fclose(file); return 0;
}
#define GPU(h) int bad = load(); if (bad) return bad; long i = (long)(h) - 1; if (i < 0 || i >= count) return 2; gpu *g = &gpus[i]
#define ALIVE(h) GPU(h); if (g->state) return g->state
int nvmlInitWithFlags(unsigned f) { return load(); }
int nvmlInit_v2(void) { return load(); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int e) {
  return e == 15 ? "GPU is lost" : e == 9 ? "Driver Not Loaded" : e == 3 ? "Not Supported" : "Unknown Error";
}
int nvmlDeviceGetCount_v2(unsigned *n) { int bad = load(); *n = count; return bad; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(long)(i + 1); return i < (unsigned)count ? 0 : 2; }
int nvmlDeviceGetUUID(void *h, char *to, unsigned n) { GPU(h); strncpy(to, g->uuid, n); return 0; }
int nvmlDeviceGetName(void *h, char *to, unsigned n) { GPU(h); strncpy(to, g->name, n); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *m) {
  ALIVE(h); m[0] = g->total << 20; m[1] = (g->total - g->used) << 20; m[2] = g->used << 20; return 0;
}
int nvmlDeviceGetUtilizationRates(void *h, unsigned *u) { ALIVE(h); u[0] = g->util; u[1] = 0; return 0; }
int nvmlDeviceGetPowerUsage(void *h, unsigned *p) { ALIVE(h); *p = g->milliwatts; return 0; }
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *t) { ALIVE(h); *t = g->celsius; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *h, unsigned long long *e) {
  ALIVE(h); *e = g->millijoules; return g->millijoules < 0 ? 3 : 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, info *to) {
  ALIVE(h); unsigned found = 0;
  for (int k = 0; k < held; k++) if (processes[k].gpu == i) {
    if (to && found < *n) {
      to[found].pid = processes[k].pid; to[found].memory = processes[k].mib << 20; to[found].instance = to[found].compute = -1;
    }
    found++;
  }
  int small = found > *n; *n = found; return small ? 7 : 0;
}
"""


@dataclass(frozen=True)
class FakeGpu:
    """One GPU as the library shows it."""

    uuid: str = "GPU-0"
    name: str = "NVIDIA-Test"
    total: int = 16_000  # MiB
    used: int = 0  # MiB
    utilisation: int = 0  # %
    watts: float = 100.0
    celsius: int = 40
    joules: float = -1.0  # below 0: no counter
    state: int = 0
    processes: tuple[tuple[int, int], ...] = ()  # pid, MiB


class FakeNvml:
    """The compiled library, and the file that it reads."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "gpus.txt"

    def show(self, gpus: Sequence[FakeGpu]) -> None:
        """Let the library show these GPUs from its next call on."""
        lines = [
            f"gpu {g.uuid} {g.name} {g.total} {g.used} {g.utilisation} {int(g.watts * 1000)} {g.celsius} {int(g.joules * 1000)} {g.state}"
            for g in gpus
        ]
        lines += [f"process {k} {pid} {mib}" for k, g in enumerate(gpus) for pid, mib in g.processes]
        place = self.state.with_suffix(".new")
        place.write_text("\n".join(lines) + "\n")
        place.replace(self.state)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that finds the library."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self.folder), "FAKE_NVML": str(self.state)}


def compile_fake_nvml(folder: Path) -> FakeNvml:
    """Compile the library; the test is skipped where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler: the fake of NVIDIA's library cannot be built, so that telemetry is NOT tested")
    source = folder / "nvml.c"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / "libnvidia-ml.so.1"), str(source)], check=True)
    return FakeNvml(folder)
