"""What is trained: LightningModules, tasks, optimisers."""
