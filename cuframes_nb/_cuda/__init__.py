"""The CUDA driver: the only place that calls it. Importing this package does not load it."""
