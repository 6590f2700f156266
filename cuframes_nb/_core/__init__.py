"""The decisions, without I/O: which slot to write, which to read, what the numbers are."""
