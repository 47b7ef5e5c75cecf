"""What every request needs: who may do what, the container it is about, caches, limits and rates.

In here: `Core` and `Call`, and what can be looked up with them. Not in here: what one method of one resource does.
"""
