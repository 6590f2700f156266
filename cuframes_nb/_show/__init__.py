"""Streams, GPUs and counters as people read them: quantities, tables, JSON."""
