"""Benchmark of a speech server from the client's side: ``shoal bench``."""
