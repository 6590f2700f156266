"""The public classes; they are re-exported at the package's root."""
