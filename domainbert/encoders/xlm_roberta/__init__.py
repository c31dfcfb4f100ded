"""The XLM-RoBERTa family (Conneau et al. 2020, arXiv:1911.02116)."""
