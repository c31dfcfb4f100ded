"""The BERT family (Devlin et al. 2019, arXiv:1810.04805)."""
