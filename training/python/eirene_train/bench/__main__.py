"""``python -m eirene_train.bench`` is ``eirene-train bench``."""

import sys

from .command import main

sys.exit(main())
