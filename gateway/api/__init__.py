"""HTTP and WebSocket endpoints, one module per group of routes.

An endpoint reads a request, calls the inner rooms and words the reply. What several endpoints share lives in
``gateway.speech``, ``gateway.voices`` or ``gateway.http``.
"""
