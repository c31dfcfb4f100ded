"""Token classification: one label per word."""
