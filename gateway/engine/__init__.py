"""The client of the engine: the connections to scheduler and vocoder workers, and the streams that arrive on them.

Nothing here knows about HTTP or audio formats.
"""
