"""Labelled tasks: reading, encoding, loss, decoding and scoring."""
