"""Text on its way to the prompt: cut into sentences and turns without losing a character, and read out in words."""
