"""Power cuts under real filesystems: what was acknowledged is there, what was not is whole or absent, nothing else is.

Clients work through a mount on a disk whose writes are logged. Then the disk is made as it was at some point of the log, without all or some
of what was not flushed; it is mounted, the store is opened, and what is in it is held against the clients' own record. tests/power/replay
does one such point again.

CKPT_TEST_FULL=1 tries 3,000 points for each filesystem, CKPT_TEST_LONG=1 with it 20,000; CKPT_TEST_SEED=N other ones.
"""

import os
import shutil
import tempfile
import time

import pytest

from power import cuts, disks
from support.fixtures import FULL, LONG
from support.mounting import World

POINTS = 20_000 if LONG else 3_000 if FULL else 100
POINTS_OF_ONE = 500  # recordings differ more than their points do
SEED = int(os.environ.get("CKPT_TEST_SEED", "1"))

pytestmark = pytest.mark.timeout(560)


@pytest.mark.parametrize("filesystem", disks.FILESYSTEMS)
def test_power_cut_loses_nothing_that_was_acknowledged_on(ckptfs, filesystem, capsys, scratch):
    if why := disks.missing(filesystem):
        pytest.skip(why)
    tried, began, seed = 0, time.monotonic(), SEED
    while tried < POINTS:
        folder = tempfile.mkdtemp(prefix="ckptfs-power-", dir=disks.memory_or(scratch))
        try:
            with World(ckptfs, scratch, time.monotonic() + 500) as world:
                tried += cuts.run(world, filesystem, seed, 40, min(POINTS_OF_ONE, POINTS - tried), folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        seed += 1
    seconds = time.monotonic() - began
    with capsys.disabled():
        print(f"{filesystem}: {tried} points, {tried / seconds:.0f} a second with {seed - SEED} recordings", flush=True)
