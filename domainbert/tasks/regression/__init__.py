"""Text regression."""
