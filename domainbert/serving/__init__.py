"""Prediction with a finished model."""
