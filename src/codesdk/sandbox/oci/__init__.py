"""The container sandbox: commands inside hardened containers of Docker or Podman."""
