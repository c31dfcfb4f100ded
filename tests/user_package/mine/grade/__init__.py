"""A task: a grade from 0 to 1 for each text."""
