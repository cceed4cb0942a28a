"""Data sets on disk: generating, storing, reading, describing."""
