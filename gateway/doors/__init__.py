"""The doors: one module per group of routes. A door reads a request, calls what the doors share, words the reply."""
