"""Train, load and align tokenizers; no torch."""
