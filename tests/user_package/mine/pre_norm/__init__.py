"""A family of encoders with pre-norm layers, which `transformers` does not have."""
