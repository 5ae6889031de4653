"""Recipe for the bundled model: from freely licensed text to a checkpoint that speaks, on two CPU cores."""
