"""PDE-JEPA: its stages, their losses, recipes, and the pipeline from a configuration to a model."""
