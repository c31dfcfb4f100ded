"""Synthetic impact-evaluation abstracts, generated from a seed."""
