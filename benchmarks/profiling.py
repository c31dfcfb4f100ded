"""The part of profiles that is the same for all trainings: which operations take the time of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

WARM_UP = 10  # steps: compiling comes with the first ones, and new shapes
_SHOWN = 30


def operations(train: Callable[[Callable[[float], None]], Any], steps: int) -> dict[str, Any]:
    """Train under torch's profiler, print the operations that take most time of themselves, and give their shares.

    `train` calls its argument after each step, and does `WARM_UP + steps + 1` of them.
    """
    on_gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities, schedule=schedule(wait=WARM_UP - 1, warmup=1, active=steps)) as looked:
        facts = train(lambda _: looked.step())
    events = looked.key_averages()
    if on_gpu:  # kernels alone: operators and steps hold the time of their kernels once more
        kernels = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
        spent = {event.key: event.self_device_time_total for event in kernels if not event.is_user_annotation}
    else:
        spent = {event.key: event.self_cpu_time_total for event in events}
    total = sum(spent.values())
    shares = {key: time / total for key, time in sorted(spent.items(), key=lambda item: -item[1])[:_SHOWN]}
    for key, share in shares.items():
        print(f"{share:6.1%}  {key[:100]}")
    print(f"{total / steps / 1000:,.1f} ms a step")
    return {"microseconds_a_step": total / steps, "shares": shares, "training": facts}
