"""The ModernBERT family (Warner et al. 2024, arXiv:2412.13663)."""
