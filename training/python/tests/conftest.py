"""Makes the helpers in this folder importable for the tests, as they are for the ranks."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
