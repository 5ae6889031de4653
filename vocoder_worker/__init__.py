"""The vocoder worker: codes to sound with kept state, and reference audio to codes."""
