"""Predict with fine-tuned models, and measure, explain and export them."""
