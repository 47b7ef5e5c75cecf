"""What `make release` writes into dist/, apart from building the images: one module for each artifact.

Nothing here asks a network or publishes anything. The same commit gives the same files, but for signatures.
"""
