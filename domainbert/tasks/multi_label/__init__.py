"""Multi-label text classification."""
