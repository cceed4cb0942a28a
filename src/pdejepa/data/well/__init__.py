"""The Well's HDF5 layout: writing, reading, checking, and distrusting files."""
