"""Checks of corpora and labelled sets, before hours are spent on them."""
