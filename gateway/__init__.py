"""HTTP in front: API dialects, validation, text to prompt tokens, voices, audio encoding; not batches or pages."""
