"""The tasks in PyTorch, on CPU or GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.workbench.data import BEST, CUSTOMERS, DAYS, POOL, image_batches, price_list, text_batches
from gpuyard.workbench.task import CLASSES, HEADS, PATCH, VOCABULARY, Scale, TaskRequest, scale_of

Loss = Callable[[int], torch.Tensor]  # number of the batch → loss


class TransformerLayer(nn.Module):  # type: ignore[misc]
    """A transformer's layer: attention, then two dense layers, each after a normalisation and added to its input."""

    def __init__(self, width: int, *, causal: bool) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.causal = causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.mix(self.before(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.dense(self.between(x))


class LanguageModel(nn.Module):  # type: ignore[misc]
    """Tokens to scores of the next token."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, scale.width), nn.Embedding(scale.context, scale.width)
        self.blocks = nn.Sequential(*(TransformerLayer(scale.width, causal=True) for _ in range(scale.layers)))
        self.norm, self.head = nn.LayerNorm(scale.width), nn.Linear(scale.width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places.weight
        return self.head(self.norm(self.blocks(x)))


class ConvolutionalNetwork(nn.Module):  # type: ignore[misc]
    """Three stages of convolutions, each of half the resolution of the one before."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        layers: list[Any] = []
        inside = 3
        for outside in (scale.channels, 2 * scale.channels, 4 * scale.channels):
            for width in (inside, outside):
                layers += [nn.Conv2d(width, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
            inside = outside
        self.body, self.head = nn.Sequential(*layers), nn.Linear(inside, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images).mean((2, 3)))


class VisionTransformer(nn.Module):  # type: ignore[misc]
    """Patches of an image through a transformer."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, scale.width, PATCH, PATCH)
        self.places = nn.Parameter(torch.zeros((scale.image // PATCH) ** 2, scale.width))
        self.blocks = nn.Sequential(*(TransformerLayer(scale.width, causal=False) for _ in range(scale.layers)))
        self.norm, self.head = nn.LayerNorm(scale.width), nn.Linear(scale.width, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.blocks(x)).mean(1))


class Training:
    """Steps of AdamW on batches that are used in turn."""

    def __init__(self, device: torch.device, trained: Iterable[torch.Tensor], model: nn.Module, loss: Loss, *, speed: float) -> None:
        self._device, self._model, self._loss = device, model, loss
        self._trained = list(trained)
        self._optimiser = torch.optim.AdamW(self._trained, lr=speed, foreach=True)
        self._last: Any = None
        self.device, self.device_name = _names(device)

    def step(self, number: int) -> None:
        """Do one step of the optimiser."""
        self._optimiser.zero_grad(set_to_none=True)
        self._last = self._loss(number % POOL)
        self._last.backward()
        self._optimiser.step()

    def settle(self) -> float:
        """Wait for the device and return the loss."""
        return float(self._last.item()) if self._last is not None else float("nan")

    def arrays(self) -> dict[str, Array]:
        """Return the weights and what the optimiser remembers."""
        found = {f"model.{name}": _array(value) for name, value in self._model.state_dict().items()}
        for k, weight in enumerate(self._trained):
            found |= {f"optimiser.{k}.{name}": _array(value) for name, value in self._optimiser.state[weight].items()}
        return found

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take over what `arrays` returned."""
        weights = {
            name.removeprefix("model."): torch.from_numpy(value.copy()) for name, value in arrays.items() if name.startswith("model.")
        }
        self._model.load_state_dict(weights)
        for k, weight in enumerate(self._trained):
            start = f"optimiser.{k}."
            remembered = {
                name.removeprefix(start): torch.from_numpy(value.copy()) for name, value in arrays.items() if name.startswith(start)
            }
            for name, value in remembered.items():
                # the optimiser keeps its count of steps on the host, everything else beside the weights
                self._optimiser.state[weight][name] = value if name == "step" else value.to(self._device)


class TorchTable:
    """Revenue by customer and by day over chunks of sales that are drawn on the device."""

    def __init__(self, device: torch.device, asked: TaskRequest, scale: Scale) -> None:
        self._device, self._seed, self._rows = device, asked.seed, scale.rows
        self._prices = torch.from_numpy(price_list(asked.seed)).to(device)
        self._customers = torch.zeros(CUSTOMERS, dtype=torch.float64, device=device)
        self._days = torch.zeros(DAYS, dtype=torch.float64, device=device)
        self._best = torch.zeros(BEST, dtype=torch.int64, device=device)
        self._random = torch.Generator(device=device)
        self.device, self.device_name = _names(device)

    def step(self, number: int) -> None:
        """Filter, join, sort, group and rank one chunk."""
        self._random.manual_seed(self._seed * 1_000_003 + number)
        customer, item, day, amount = (self._draw(high) for high in (CUSTOMERS, len(self._prices), DAYS, 9))
        amount = amount + 1
        kept = torch.nonzero(amount > 1)[:, 0]
        kept = kept[torch.sort(day[kept], stable=True).indices]
        revenue = amount[kept] * self._prices[item[kept]]
        self._customers.index_add_(0, customer[kept], revenue)
        self._days.index_add_(0, day[kept], revenue)
        self._best = torch.sort(self._customers, descending=True, stable=True).indices[:BEST]

    def _draw(self, high: int) -> torch.Tensor:
        return torch.randint(0, high, (self._rows,), generator=self._random, device=self._device)

    def settle(self) -> float:
        """Wait for the device and return the revenue of the best customers."""
        return float(self._customers[self._best].sum().item())

    def arrays(self) -> dict[str, Array]:
        """Return the totals."""
        return {"customers": _array(self._customers), "days": _array(self._days), "best": _array(self._best)}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take over the totals."""
        found = (torch.from_numpy(arrays[name].copy()).to(self._device) for name in ("customers", "days", "best"))
        self._customers, self._days, self._best = found


def make(asked: TaskRequest) -> Training | TorchTable:
    """Make the task on the device asked for."""
    torch.set_num_threads(max(asked.threads, 1))
    with contextlib.suppress(RuntimeError):  # it can be set once in a process
        torch.set_num_interop_threads(1)
    device = _device(asked.device)
    torch.manual_seed(asked.seed)
    torch.set_float32_matmul_precision("high")  # TF32, as people train
    scale = scale_of(asked, "cpu" if device.type == "cpu" else "gpu")
    if asked.kind == "etl":
        return TorchTable(device, asked, scale)
    return _language(device, asked, scale) if asked.kind == "lm" else _pictures(device, asked, scale)


def _language(device: torch.device, asked: TaskRequest, scale: Scale) -> Training:
    """Fine-tune: the embeddings and the lower half of the layers stay as they are."""
    model = LanguageModel(scale).to(device)
    for part in (model.tokens, model.places, *list(model.blocks)[: scale.layers // 2]):
        part.requires_grad_(False)
    tokens = torch.from_numpy(text_batches(asked.seed, scale.sequences, scale.context + 1)).to(device)

    def loss(batch: int) -> torch.Tensor:
        scores = model(tokens[batch, :, :-1])
        return functional.cross_entropy(scores.reshape(-1, VOCABULARY), tokens[batch, :, 1:].reshape(-1))

    return Training(device, (weight for weight in model.parameters() if weight.requires_grad), model, loss, speed=1e-3)


def _pictures(device: torch.device, asked: TaskRequest, scale: Scale) -> Training:
    model = (ConvolutionalNetwork if asked.kind == "cnn" else VisionTransformer)(scale).to(device)
    images, labels = (
        torch.from_numpy(np.ascontiguousarray(each)).to(device) for each in image_batches(asked.seed, scale.images, scale.image)
    )
    return Training(
        device, model.parameters(), model, lambda batch: functional.cross_entropy(model(images[batch]), labels[batch]), speed=1e-3
    )


def _device(asked: str) -> torch.device:
    found = torch.cuda.is_available()
    if asked == "gpu" and not found:
        raise UsageError("torch sees no GPU", hint="--device auto takes the CPU then")
    return torch.device("cuda" if found and asked != "cpu" else "cpu")


def _names(device: torch.device) -> tuple[str, str]:
    return ("cpu", "cpu") if device.type == "cpu" else ("gpu", torch.cuda.get_device_name(device))


def _array(value: torch.Tensor) -> Array:
    found: Array = value.detach().cpu().numpy()
    return found.copy()
