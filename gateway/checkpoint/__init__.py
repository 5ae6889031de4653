"""The served checkpoint as the gateway sees it: prompt format, defaults, and the voices that it brings.

No weights, and nothing of a single request.
"""
