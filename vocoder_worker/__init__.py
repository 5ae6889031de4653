"""The vocoder worker: decodes code frames to audio chunk by chunk, with state per stream, and encodes clips."""
