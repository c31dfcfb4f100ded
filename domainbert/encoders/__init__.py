"""Encoder families: torch modules whose parameters are saved under Hugging Face names."""
