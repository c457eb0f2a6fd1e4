"""The bubblewrap sandbox: commands in namespaces of their own, the default on Linux."""
