"""A slot's memory as arrays that keep alive whatever keeps the memory theirs."""
