"""The RoBERTa family (Liu et al. 2019, arXiv:1907.11692)."""
