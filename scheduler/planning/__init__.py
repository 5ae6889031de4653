"""Decisions: admission, placement, the rows of the next AR step, the frames of the next vocoder call.

What happens to a request afterwards (results, losses, its end) belongs in ``lifecycle``.
"""
