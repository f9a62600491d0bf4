"""What POSIX and Linux say of files, as the plain filesystem does it: every case of cases/ runs there and in a mount.

What a mount answers must be what the disk's own filesystem answers, to the last value. The exceptions are in
posix_differences.md, each with its reason; one that does not occur any more fails, too.
"""

import os
import re

import pytest

from support.fixtures import SOURCE, scratch_folder
from support.posix import DIFFERENCES, Places, names_of

pytestmark = pytest.mark.timeout(120)


def in_a_mount(places, place):
    with places.world() as world:
        mount = places.mounted(world, place)
        folder = "1000" if "staged" in place else "plain"
        (mount / folder).mkdir()
        said = places.cases(mount / folder)
        assert mount.listing() == (["plain"] if folder == "plain" else [])
        assert not [line for line in mount.errors() if "choose another name" not in line]
        return said


# Words that the list of differences uses; the last is the mode of the mount.
PLACES = dict.fromkeys(["staged passthrough", "plain passthrough", "staged daemon", "plain daemon"], in_a_mount)


@pytest.fixture(scope="module")
def places(ckptfs):
    with scratch_folder() as scratch:
        yield Places(ckptfs, scratch, PLACES)


@pytest.mark.parametrize("place", [pytest.param(p, marks=pytest.mark.skipif("passthrough" in p and os.geteuid() != 0, reason="only root has passthrough"))
                                   for p in PLACES])
@pytest.mark.parametrize("case", names_of("posix"))
def test_a_mount_answers_as_the_disk_does(places, place, case):
    places.compare(place, case)


def test_what_is_listed_is_of_a_case_and_linked():
    names = names_of("posix") + names_of("users")
    for one in DIFFERENCES:
        assert one.of_any(names), f"no such case: {one}"
    assert re.search(r"tests/fs/posix_differences\.md", (SOURCE / "README.md").read_text())
