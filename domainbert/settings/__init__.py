"""Settings of stages: YAML files and command-line options, validated together against the settings dataclass."""
