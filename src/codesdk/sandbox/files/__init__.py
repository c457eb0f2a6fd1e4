"""Files beneath an open directory, read and changed without races."""
