"""Plans: which rows go into the next AR step, which frames into the next vocoder call, and what they cost."""
