"""The kinds of vocabulary: every folder here with a `config.py` and a `kind.py` is one."""
