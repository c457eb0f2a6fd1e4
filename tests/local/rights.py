"""Programs to which file permissions apply, even if the tests run as root."""

import os

AS_OTHERS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
"""What stands before a command. It stays root, whose Python may lie where no other user can read, without its privileges."""
