"""Requests that cost much, and what they keep a worker from."""
