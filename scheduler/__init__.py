"""Every decision: who waits, is admitted, is prefilled, decodes in this step, and is turned into sound next.

``core`` is the heart: events in, plans out; no sockets, no clock, no torch. ``shell`` moves its messages.
"""
