"""Linux pieces, each with one owner: descriptors, packets, shared memory, locks, directories."""
