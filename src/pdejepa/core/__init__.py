"""Leaf helpers that every other folder may import: errors, configuration, files, locks, devices."""
