"""One class for each text."""
