"""Checks of corpora and labelled sets before a long training."""
