"""HTTP in front: API dialects, validation, text to prompt tokens, voices, audio encoding. Knows nothing of batches or pages."""
