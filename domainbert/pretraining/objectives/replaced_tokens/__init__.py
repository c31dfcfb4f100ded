"""Detection of replaced tokens: ELECTRA, DeBERTa-v3."""
