"""Authentication: tokens of v1 and of Keystone, and signatures in place of tokens (TempURL).

This package has what proves an identity. What the identity may do doesn't belong here (see `context.access`).
"""
