"""Voices: the library on disk, and recordings that come with a request."""
