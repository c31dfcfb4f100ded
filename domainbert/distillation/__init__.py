"""Distillation: losses between a student and its teacher, and the LightningModules that train with them."""
