"""Memory that can be shared as one descriptor: the arenas."""
