"""Generating data sets: cut into files, resumable, described, proven by a manifest."""
