"""Byte-level BPE, the vocabulary of GPT-2 and RoBERTa."""
