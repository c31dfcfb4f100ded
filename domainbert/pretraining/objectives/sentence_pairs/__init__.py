"""Masked LM and how the two halves of a pair belong together."""
