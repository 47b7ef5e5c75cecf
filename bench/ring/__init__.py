"""Rings: their quality, and what they cost."""
