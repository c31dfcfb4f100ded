"""Masked LM, and causal LM in some of the steps: GPT-BERT, AntLM."""
