"""The ELECTRA family (Clark et al. 2020, arXiv:2003.10555)."""
