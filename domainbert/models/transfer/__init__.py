"""Vectors for the entries of a new vocabulary, mixed from those of an old one."""
