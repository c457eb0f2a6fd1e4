"""Where tools run and what they can reach. So far: files, opened race-free beneath a directory."""
