"""Settings: YAML files and typed options, checked against the signature of a stage, every problem at once."""
