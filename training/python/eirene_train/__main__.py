"""``python -m eirene_train`` is ``eirene-train``."""

import sys

from .command import main

sys.exit(main())
