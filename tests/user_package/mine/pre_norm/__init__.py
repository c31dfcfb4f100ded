"""A family of encoders: pre-norm, gated layers, positions that are sines. `transformers` knows nothing of it."""
