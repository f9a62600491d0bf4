"""Nodes of one store in a bucket: mounts with work directories of their own. A test imports the fixtures by `from support.nodes import *`.

    first = node("a")
    first.save("1000")
    first.wait("1000")
    first.lose()
    assert node("b").listing() == ["1000"]
"""

import contextlib
import json
import os
import shutil
import time
import uuid

import pytest

from support import trees
from support.mounting import Mount

SEEN = 8  # seconds until another node shows what was pushed: it looks every two


class Node(Mount):
    """A mount of a URL. Its work directory can be thrown away, and its endpoint is what a test puts between it and the server."""

    def __init__(self, world, url, path, work_dir, endpoint, options):
        super().__init__(world, url, path, "passthrough", options, ())
        self.store, self.work_dir, self.endpoint = url, work_dir, endpoint
        self.options = [f"work_dir={work_dir}", f"endpoint={endpoint}", *options]

    def save(self, name="1000", **kwargs):
        """Saves a step, and says what it is."""
        folder = self / name
        folder.mkdir()
        trees.fill(folder, seed=name, **kwargs)
        return self.complete(name)

    def complete(self, name):
        trees.write(self / name / ".finalize", b"")
        return trees.describe(self / name)

    def wait(self, *step, timeout=40):
        self.world.program("wait", self.path, *step, "--remote", "--timeout", f"{timeout}s", timeout=timeout + 10)

    def lose(self):
        """The daemon is killed, and the machine's disk is gone."""
        self.kill9()
        shutil.rmtree(self.work_dir)

    def all_files(self):
        """{name: bytes} of what stands in the work directory."""
        return {p: p.read_bytes() for p in self.work_dir.rglob("*") if p.is_file() and not p.is_symlink()}


@pytest.fixture(autouse=True)
def environment(s3_server, monkeypatch, scratch):
    """Keys and region of the server; no profile of whoever runs the tests."""
    for name, value in s3_server.settings.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(scratch / "no-such-file"))


@pytest.fixture
def url(s3_server, s3_prefix):
    return f"s3://{s3_server.bucket}/{s3_prefix.rstrip('/')}"


@pytest.fixture
def client(s3_server):
    return s3_server.client()


@pytest.fixture
def keys(client, s3_server, s3_prefix):
    """The keys below the store's URL, or below a part of it."""
    def listed(part=""):
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=s3_server.bucket, Prefix=s3_prefix + part)
        return sorted(row["Key"].removeprefix(s3_prefix) for page in pages for row in page.get("Contents", []))
    return listed


@pytest.fixture
def probed_before(ckptfs, client, s3_server, s3_prefix, url):
    """Makes a work directory that says that the server was found to keep to what a log needs.

    A mount tries that: it lets writers race. SeaweedFS lets each who loses wait for a second or two, which is too long for each test.
    """
    def make(base, endpoint):
        base.mkdir()
        identity = {"format": 1, "id": str(uuid.uuid4()), "created_ns": time.time_ns(), "required": ["log"], "optional": []}
        with contextlib.suppress(client.exceptions.ClientError):
            client.put_object(Bucket=s3_server.bucket, Key=s3_prefix + "store.json", Body=json.dumps(identity), IfNoneMatch="*")
        ckptfs("ls", url, env=os.environ | {"CKPTFS_WORK_DIR": str(base), "AWS_ENDPOINT_URL_S3": s3_server.endpoint})
        [made] = base.iterdir()
        here = json.loads((made / "store.json").read_text())
        here["remote"] |= {"options": [f"endpoint={endpoint}"], "probed": True}
        (made / "store.json").write_text(json.dumps(here))
        return made
    return make


@pytest.fixture
def node(world, scratch, s3_server, url, probed_before):
    """Mounts the store on the node of this name, which has a work directory of its own."""
    work_dirs = {}

    def make(name, endpoint=None, options=(), probes=False):
        endpoint = endpoint or s3_server.endpoint
        if name not in work_dirs:
            work_dirs[name] = scratch / f"work-{name}" if probes else probed_before(scratch / f"work-{name}", endpoint)
        path = scratch / f"mnt-{name}"
        path.mkdir(exist_ok=True)
        n = Node(world, url, path, work_dirs[name], endpoint, options)
        world.callback(n._end)
        return n.start()
    return make
