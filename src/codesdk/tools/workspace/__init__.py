"""The built-in tools on files of the workspace, and what they share."""
