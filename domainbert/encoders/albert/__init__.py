"""The ALBERT family (Lan et al. 2020, arXiv:1909.11942)."""
