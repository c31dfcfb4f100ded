"""The relation between two entities of a text."""
