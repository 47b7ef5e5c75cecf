"""Tests of the storage servers."""
