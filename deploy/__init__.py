"""Deployment: starting, supervising and observing the process group."""
