"""Text classification: one class per text."""
