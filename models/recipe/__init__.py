"""The recipe of ``models/mini``: from freely licensed text to a checkpoint that speaks, on two CPU cores."""
