"""The MPNet family (Song et al. 2020, arXiv:2004.09297)."""
