"""Comparisons: every solver on the same data, with the same budget, judged by the same numbers."""
