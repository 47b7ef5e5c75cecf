"""Composition roots: where mechanisms meet, one module per service, and the command line that starts them.

In here: reading settings, building collaborators and handing them to each other, running until asked to end. Not
in here: any behaviour of its own. Nothing imports this room.
"""
