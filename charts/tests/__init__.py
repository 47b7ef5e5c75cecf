"""The charts, rendered with many values and looked at; needs `helm`."""
