import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.object_fixtures import s3_server  # noqa: E402,F401
