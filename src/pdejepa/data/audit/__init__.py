"""Auditing data sets: content, frames, splits, and solving a sample again."""
