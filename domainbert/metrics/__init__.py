"""Scores of entities and classes, with intervals; spans are plain tuples `(start, end, type)`."""
