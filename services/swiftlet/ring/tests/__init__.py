"""Tests of rings: properties over random clusters, formats, errors, the command line."""
