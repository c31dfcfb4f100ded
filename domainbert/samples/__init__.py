"""Synthetic impact-evaluation abstracts, made from a seed."""
