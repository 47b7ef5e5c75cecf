"""Tests of the listing audit."""
