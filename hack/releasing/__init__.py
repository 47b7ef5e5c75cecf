"""Write the artifacts of a release into dist/ once the images are built: one module for each kind of artifact.

Nothing here asks a network or publishes anything. The same commit gives the same files, but for signatures.
"""
