"""A speech request from acceptance to its last byte: sessions, turns, prompts, conversations and encoded streams."""
