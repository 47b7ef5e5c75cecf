"""What operations and rounds cost as a store grows, as curves, and a model of what lies beyond this machine."""
