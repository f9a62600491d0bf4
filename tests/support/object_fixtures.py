"""Fixtures of object servers: tests/support/object_servers.py says how to use them."""

import os
import subprocess

import pytest

from support.object_servers import FaultProxy, install, is_installed, new_prefix, running_server

FULL = os.environ.get("CKPT_TEST_FULL", "") not in ("", "0")
CHOSEN = os.environ.get("CKPT_TEST_S3_SERVER")
SERVERS = [CHOSEN] if CHOSEN else ["seaweedfs", "ceph-rgw"] if FULL else ["seaweedfs"]


@pytest.fixture(scope="session", params=SERVERS)
def s3_server(request):
    """A real server that keeps its word on conditions."""
    if request.param == "ceph-rgw" and not is_installed("ceph-rgw"):
        pytest.skip("Ceph RGW is not installed here: tests/servers/ceph-rgw install, as root")
    try:
        install(request.param)
    except (OSError, subprocess.CalledProcessError) as e:
        pytest.skip(f"{request.param} cannot be installed here: {e}")
    with running_server(request.param) as server:
        yield server


@pytest.fixture
def s3_prefix():
    """The beginning of this test's keys; it ends with a slash."""
    return new_prefix()


@pytest.fixture(scope="session")
def shared_proxy(s3_server, tmp_path_factory):
    with FaultProxy(s3_server.endpoint, log=tmp_path_factory.mktemp("proxy") / "requests.jsonl") as proxy:
        yield proxy


@pytest.fixture
def fault_proxy(shared_proxy):
    """A proxy in front of the server that disturbs nothing until it is told to."""
    yield shared_proxy
    shared_proxy.renew()
