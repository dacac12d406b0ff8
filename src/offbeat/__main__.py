"""`python -m offbeat` is the command `offbeat`, for a Python whose scripts are not on the PATH."""

from __future__ import annotations

import sys

from offbeat.cli.entry import main

if __name__ == "__main__":
    sys.argv[0] = "offbeat"
    main()
