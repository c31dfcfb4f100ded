"""Masked LM."""
