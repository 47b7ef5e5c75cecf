"""Measures what operations and rounds cost as a store grows, and fits a model of what lies beyond this machine."""
