"""Files beneath a held directory, opened and changed without races."""
