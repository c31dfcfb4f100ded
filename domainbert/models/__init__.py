"""The model folder: what a Hugging Face folder holds, read and written."""
