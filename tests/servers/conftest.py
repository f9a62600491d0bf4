import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.fixtures import *  # noqa: E402,F401,F403


@pytest.fixture
def client(s3_server, fault_proxy):
    """Speaks through the proxy, and tries each request once."""
    return s3_server.client(fault_proxy.endpoint)


@pytest.fixture
def direct(s3_server):
    """Sees what the server has."""
    return s3_server.client()
