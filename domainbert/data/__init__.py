"""Labelled and unlabelled data as packed batches."""
