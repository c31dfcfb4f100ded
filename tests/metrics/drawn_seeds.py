"""The seeds of a system that the bootstrap draws, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray


def drawn_seeds(seed: int, counts: Sequence[NDArray[Any]], resamples: int) -> NDArray[np.int64]:
    """For each resample as many of the system's seeds as there are: (resamples, seeds)."""
    totals = np.stack(counts, axis=1).astype(np.float64).sum(axis=0)
    return np.random.default_rng([seed, crc32(totals.tobytes())]).integers(len(counts), size=(resamples, len(counts)))
