"""Run stages, one at a time or as a recipe: output folders, their records, lists of runs and the table of results."""
