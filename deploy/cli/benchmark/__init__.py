"""Measuring a speech server from its client's side: ``shoal bench``."""
