"""Training: Trainer, callbacks, precision."""
