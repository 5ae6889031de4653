"""Voices: those of the library on disk, those a checkpoint brings, and recordings that come with a request."""
