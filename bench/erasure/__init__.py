"""Erasure coding measured: the codec beside ISA-L (`run.sh`), and stores with it beside stores with three copies."""
