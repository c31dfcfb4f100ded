"""Reads and writes model folders in the Hugging Face format."""
