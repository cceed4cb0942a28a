"""Errors of forecasts against the solver, and the files that record them."""
