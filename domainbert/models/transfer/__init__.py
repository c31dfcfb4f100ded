"""Vectors for the entries of a new vocabulary, computed from the vectors of an old one."""
