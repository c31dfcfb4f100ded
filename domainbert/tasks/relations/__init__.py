"""Relation classification between two entities of a text."""
