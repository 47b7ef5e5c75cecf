"""Measurements of the data plane: object servers and what speaks to them."""
