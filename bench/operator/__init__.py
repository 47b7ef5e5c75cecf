"""The operator with many clusters."""
