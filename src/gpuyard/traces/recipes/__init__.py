"""Recipes of workloads: texts that name workloads and clusters, and sources that make an episode of each number.

    [WEIGHT*]WORKLOAD[OPTIONS][ on CLUSTER]

- **A generator**, a new workload for each episode: `family:shape=bursty,intensity=high,gpus=8 on 8`. A parameter may be several values
  to choose from, `family:shape=base|bursty|diurnal,gpus=2|4|8|16 on {gpus}`: each combination is as likely as any other.
- **A trace**, windows of it: `log.swf.gz[jobs=256; until=0.8; apply=load:0.9; estimate=rolling] on 256`, or `dataset:NAME[…]`.
- **A mix**: several texts; of `3*demo` and `family` three of four episodes are of the first.

OPTIONS are separated by semicolons. `jobs=256`: consecutive jobs from a random place, shifted so that the first is submitted at 0; of a
trace 256 unless given, of a generator all; `jobs=all` is the whole of it. `apply=A+B`: transforms; `estimate=SOURCE`: what schedulers
believe. Both come before the cut; a predictor knows what had ended before the first job of the window, and then what ends in the
simulation. Only of a trace:
`from=`, `until=` (a share of its span, at most 1, a time such as `30d`, or a date), `reader=`.

CLUSTER is as for `--cluster`; several to choose from are `8|4x8:v100`; `{gpus}` is the value of that parameter of the generator in this
episode, `{seed}` the episode's seed (`hosts:count=50,seed={seed}`: new hosts every time).

An episode's number decides everything: number = c + combinations × k has the c-th combination and the k-th seed of its part (see
`gpuyard.traces.splits`), so that numbers 0, 1, 2 … go through every combination in turn and large random numbers draw evenly.
"""

from gpuyard.traces.recipes.reading import Reading, names_generator
from gpuyard.traces.recipes.sources import (
    Clusters,
    Episode,
    EpisodeSource,
    GeneratorSource,
    Mix,
    Trace,
    TraceSource,
    Workloads,
    episode_number,
)
from gpuyard.traces.recipes.text import Recipe, parse_recipe, with_jobs

__all__ = [
    "Clusters", "Episode", "EpisodeSource", "GeneratorSource", "Mix", "Reading", "Recipe", "Trace", "TraceSource", "Workloads",
    "episode_number", "names_generator", "parse_recipe", "with_jobs",
]  # fmt: skip
