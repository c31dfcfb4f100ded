"""Encoder families: torch modules with Hugging Face names at the file boundary."""
