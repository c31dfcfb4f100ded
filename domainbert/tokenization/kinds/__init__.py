"""Kinds of vocabulary: one folder per kind, with a `config.py` and a `kind.py`."""
