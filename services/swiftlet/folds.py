"""How often the rows of listings that native code has taken are merged into their databases: container servers keep to
it, and advice counts with it.
"""

FOLD_AFTER_S = 1.0
"""The longest time in seconds for which a row waits where few databases get rows (setting `container.fold_after_s`)."""
FOLDS_A_DEVICE = 25
"""The number of databases of a device that are folded by the clock within that time, unless they have many rows; with
more of them rows wait longer.
"""
