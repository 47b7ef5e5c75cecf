"""The purposes for which keys are derived from the cluster's secret; all services must use the same words."""

TOKENS = "tokens"
"""Signs users' tokens."""
