"""Makes the helpers in this folder importable for the tests, as they are for the ranks; nothing is measured unless a test asks for it."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["EIRENE_TRAIN_TUNING"] = "off"
