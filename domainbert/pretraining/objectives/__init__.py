"""The pretraining objectives: a folder each, with a `config.py` and an `objective.py`."""
