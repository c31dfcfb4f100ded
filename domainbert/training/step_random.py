"""Random numbers of a training step: a function of seed, step, micro-batch and process."""

from __future__ import annotations

from collections.abc import Sequence

import lightning
import numpy as np
import torch

from domainbert.encoders.dropout import draw_from


class StepRandom:
    """Generators that are seeded for each training step, so that resuming needs no generator state; outside of the
    steps, torch's global generators continue as if unused."""

    def __init__(self) -> None:
        self._outer_states: list[torch.Tensor] = []  # of the global generators before the step: CPU, GPU

    def begin(self, numbers: Sequence[int], device: torch.device) -> None:
        """Seed the generators of the CPU and of the device by `numbers`, until `end`."""
        generator = np.random.SFC64([number % 2**64 for number in numbers])
        seed = generator.random_raw()
        on_gpu = device.type == "cuda"
        if not self._outer_states:  # else they are of a step that failed for lack of memory, and was repeated
            gpu_states = [torch.cuda.get_rng_state(device)] if on_gpu else []
            self._outer_states = [torch.get_rng_state(), *gpu_states]
        torch.default_generator.manual_seed(seed)  # torch.manual_seed checks all accelerators, which takes 1 ms
        if on_gpu:
            torch.cuda.manual_seed(seed)
        draw_from(generator)

    def end(self, device: torch.device) -> None:
        """Restore the generators from before the step; without effect outside of a step."""
        draw_from(None)
        if self._outer_states:
            cpu_state, *gpu_states = self._outer_states
            torch.set_rng_state(cpu_state)
            for state in gpu_states:
                torch.cuda.set_rng_state(state, device)
            self._outer_states = []


class EndStep(lightning.Callback):
    """Callback that restores the generators if an exception ends a training step."""

    def on_exception(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: object) -> None:
        """Restore the generators."""
        random = getattr(pl_module, "step_random", None)  # the Trainer may fit a module of another kind later
        if isinstance(random, StepRandom):
            random.end(pl_module.device)
