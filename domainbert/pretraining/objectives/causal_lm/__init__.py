"""Causal LM, as a phase before masked LM."""
