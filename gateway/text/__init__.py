"""Text processing: lossless splitting into sentences and turns, and normalisation to words."""
