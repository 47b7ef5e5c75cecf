"""How fast a static large object of many segments comes, against a plain object of the same bytes."""
