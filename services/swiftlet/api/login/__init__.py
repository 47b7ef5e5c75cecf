"""Who asks: tokens of v1 and of Keystone, and signatures in place of tokens (TempURL).

In here: what proves an identity. Not in here: what it may do (`context.access`).
"""
