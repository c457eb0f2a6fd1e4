"""The bubblewrap sandbox: commands in their own namespaces, the default on Linux."""
