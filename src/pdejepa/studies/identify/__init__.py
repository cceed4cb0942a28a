"""How well parameters are found from observed frames: every system with a model, by frames, noise and split."""
