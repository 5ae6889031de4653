"""HTTP mechanics: bodies, forms, errors, CORS, connections, idempotency, offloading and the response stream.

Nothing here knows about speech, voices or the engine.
"""
