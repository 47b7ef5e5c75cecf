"""Measurements of the front path that later work is compared with."""
