"""`patch.apply`: a unified diff, parsed and applied as a whole."""
