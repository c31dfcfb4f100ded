"""Search over the settings of a stage: every trial a process of its own, any number of workers, one storage."""
