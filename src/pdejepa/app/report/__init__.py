"""A page about one training run, for people who were not there."""
