"""What clients notice while something of a store is broken, and how long it takes until all copies are back."""
