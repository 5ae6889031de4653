"""HAProxy in front of several groups."""
