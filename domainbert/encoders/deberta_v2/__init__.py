"""The DeBERTa family, versions 2 and 3 (He et al. 2021, arXiv:2006.03654 and arXiv:2111.09543)."""
