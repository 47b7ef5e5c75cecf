"""Composition roots: one module per service, and the command line that starts them.

Reading settings, creating objects and connecting them, and running until asked to end belong here. Behaviour doesn't.
No other package imports this one.
"""
