"""Power cuts of a node while it pushes to a bucket: bucket.py says how.

CKPT_TEST_FULL=1 tries 200 points of each filesystem, CKPT_TEST_LONG=1 with it 500; CKPT_TEST_POINTS=N so many, CKPT_TEST_SEED=N other ones.
"""

import os
import shutil
import tempfile
import time

import pytest

from power import bucket, disks
from support.fixtures import FULL, LONG
from support.mounting import World
from support.nodes import environment  # noqa: F401

POINTS = int(os.environ.get("CKPT_TEST_POINTS") or (500 if LONG else 200 if FULL else 8))
POINTS_OF_ONE = 50
ACTS = 25
SEED = int(os.environ.get("CKPT_TEST_SEED", "1"))

pytestmark = pytest.mark.timeout(560)


@pytest.mark.parametrize("filesystem", disks.FILESYSTEMS if POINTS > 8 else ["ext4"])
def test_power_cut_in_a_push_leaves_node_and_bucket_alike_on(ckptfs, filesystem, capsys, scratch, s3_server):
    if why := disks.missing(filesystem):
        pytest.skip(why)
    tried, in_puts, began, seed = 0, 0, time.monotonic(), SEED
    while tried < POINTS:
        folder = tempfile.mkdtemp(prefix="ckptfs-power-", dir=disks.memory_or(scratch))
        try:
            with World(ckptfs, scratch, time.monotonic() + 500) as world:
                done = bucket.run(world, s3_server, filesystem, seed, ACTS, min(POINTS_OF_ONE, POINTS - tried), folder)
            tried, in_puts = tried + done[0], in_puts + done[1]
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        seed += 1
    with capsys.disabled():
        print(f"{filesystem}: {tried} points, {in_puts} of them in a put, in {time.monotonic() - began:.0f} s with {seed - SEED} recordings", flush=True)
