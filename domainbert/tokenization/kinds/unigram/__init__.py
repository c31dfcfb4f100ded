"""Unigram, the vocabulary of sentencepiece: ALBERT, XLM-R, DeBERTa-v3."""
