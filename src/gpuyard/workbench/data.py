"""Data that is generated: text with a grammar, images with a pattern, rows of a table. The same seed gives the same data."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.workbench.task import CLASSES, VOCABULARY

SUCCESSORS = (
    4  # tokens that may follow a token: a model that knows the grammar has a loss of at most log 4 = 1.39, one that does not log 64
)
POOL = 8  # batches that are made once and used in turn
CUSTOMERS, ITEMS, DAYS = 10_000, 1_000, 365
BEST = 100  # customers that are ranked after each chunk


def text_batches(seed: int, sequences: int, length: int) -> Array:
    """Draw (POOL, sequences, length) tokens from a chain in which four tokens may follow each token."""
    random = np.random.default_rng([seed, 0x74657874])
    follows = random.integers(0, VOCABULARY, (VOCABULARY, SUCCESSORS))
    tokens = np.empty((POOL * sequences, length), np.int64)
    tokens[:, 0] = random.integers(0, VOCABULARY, len(tokens))
    for place in range(1, length):
        tokens[:, place] = follows[tokens[:, place - 1], random.integers(0, SUCCESSORS, len(tokens))]
    return tokens.reshape(POOL, sequences, length)


def image_batches(seed: int, images: int, side: int) -> tuple[Array, Array]:
    """Draw (POOL, images, 3, side, side) gratings in noise, and their classes: the class is the angle of the grating."""
    random = np.random.default_rng([seed, 0x696D6167])
    labels = random.integers(0, CLASSES, POOL * images)
    angle = labels * (np.pi / CLASSES)
    rows, columns = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    along = np.cos(angle)[:, None, None] * columns + np.sin(angle)[:, None, None] * rows
    phase = random.uniform(0, 2 * np.pi, len(labels))[:, None, None]
    grating = np.sin(along * (2 * np.pi / 6) + phase).astype(np.float32)
    pictures = grating[:, None] + random.normal(0, 0.5, (len(labels), 3, side, side)).astype(np.float32)
    return pictures.reshape(POOL, images, 3, side, side), labels.reshape(POOL, images)


def price_list(seed: int) -> Array:
    """Draw the (ITEMS,) prices that rows are joined with."""
    return np.random.default_rng([seed, 0x70726963]).uniform(1, 100, ITEMS)


def sales(seed: int, chunk: int, rows: int) -> tuple[Array, Array, Array, Array]:
    """Draw one chunk of the table: customer, item, day and amount of each row."""
    random = np.random.default_rng([seed, chunk, 0x726F7773])
    return (
        random.integers(0, CUSTOMERS, rows),
        random.integers(0, ITEMS, rows),
        random.integers(0, DAYS, rows),
        random.integers(1, 10, rows).astype(np.float64),
    )
