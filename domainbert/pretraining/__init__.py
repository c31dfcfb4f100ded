"""Pretraining on a prepared corpus: rows, masks, objective."""
