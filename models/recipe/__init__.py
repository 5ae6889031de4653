"""From freely licensed text to a small checkpoint that speaks, on two CPU cores."""
