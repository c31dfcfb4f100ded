"""The DistilBERT family (Sanh et al. 2019, arXiv:1910.01108)."""
