"""What every request needs: rights, its container, caches, limits and rates.

This package has `Core` and `Call`, and what can be looked up with them. What one method of one resource does doesn't
belong here.
"""
