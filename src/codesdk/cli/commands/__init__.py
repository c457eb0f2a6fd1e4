"""The commands, one module for each group of them. `app` loads a module when one of its commands is used."""
