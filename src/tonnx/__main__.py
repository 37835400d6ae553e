"""``python -m tonnx`` is the command ``tonnx``."""

import sys

from tonnx.cli import main

sys.exit(main())
