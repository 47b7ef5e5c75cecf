"""Measurements of encryption between services."""
