"""Predictions of `swiftlet advise` beside measured runs."""
