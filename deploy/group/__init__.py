"""The process group: configuration, start, supervision and shutdown, health check, ports and MPS."""
