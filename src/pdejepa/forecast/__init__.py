"""Trained models as files, and forecasts with them."""
