"""The scheduler process: decides which requests are admitted, prefilled, decoded and vocoded next.

:mod:`scheduler.core` is pure: events in, messages out, with no sockets, clock or torch. :mod:`scheduler.shell` moves
its messages. A room imports only from the rooms above it in this list:

- ``resources``: slots, KV pages, the prefix cache, cost models; knows no request
- ``requests``: state of a request and the waiting queue; knows no worker
- ``workers``: registered workers and each request's place on them
- ``planning``: decisions, which change no request's state of life: admission, placement, steps, vocoder calls
- ``lifecycle``: how requests begin, continue and end: registry, results of steps and calls, recovery, clips
- ``observe``: metrics and the journal
- ``simulate``: the simulator
"""
