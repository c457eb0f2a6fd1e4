"""The commands, one module per group. `app` loads a module when one of its commands is used."""
