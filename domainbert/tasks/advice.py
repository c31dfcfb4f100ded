"""Advice where a training on labelled text came to nothing."""

ADVICE = "try another optim.lr (lower if the loss jumps, higher if it stands still) or more epochs"
