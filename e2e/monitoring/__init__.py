"""Alerts and dashboards, driven by what a store under load and in degraded modes exports."""
