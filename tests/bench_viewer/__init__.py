"""Measures viewers in a real JupyterLab and a real Chromium: ``python -m tests.bench_viewer``."""
