"""JPEG made on the GPU: only compressed bytes come to the host.

Importing this package loads neither CuPy nor nvJPEG.
"""
