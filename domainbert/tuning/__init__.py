"""Search over the settings of a stage: each trial is a separate process, and several workers share one storage."""
