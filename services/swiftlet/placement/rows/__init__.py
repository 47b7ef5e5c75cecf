"""Listing rows of writes on their way to container replicas, and what the devices are told when they arrived."""
