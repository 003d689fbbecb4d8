"""Real programs: the manifest of the corpus and its reader, a user's own, and their canonical form."""
