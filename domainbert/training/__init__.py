"""How it is trained: Trainer, callbacks, precision."""
