"""Late files of other ranks (core/profile/profile.h): a step does not wait for them, each is added at its close."""

import errno
import json
import os
import threading
import time

import pytest

from support import trees
from support.commits import error_line
from support.fixtures import both_modes
from support.last_acts import accelerate, info, listed, trainer
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("options", ["open_writers=1s"], indirect=True)
@both_modes
def test_late_files_of_other_ranks_are_added(mount):
    folder = str(mount / "checkpoint-500")
    for _ in trainer(folder):
        pass
    trees.write(folder + "/rng_state_1.pth", b"late")
    assert len(info(mount, "checkpoint-500")["versions"]) == 2
    mount.remount()
    assert (mount / "checkpoint-500/rng_state_1.pth").read_bytes() == b"late"


LATE = [(trainer, "checkpoint-500", "rng_state_1.pth"), (accelerate, "checkpoint_3", "random_states_1.pkl")]
late = pytest.mark.parametrize("writer,name,file", LATE, ids=[n for _, n, _ in LATE])


def begin(mount, agent, writer, name, file):
    """A save but for its last act, and a rank that has written half of its late file: (folder, rank, the rest of the save)."""
    folder, rank1, save = mount / name, agent(), writer(str(mount / name))
    next(save)
    rank1.run("fd = os.open(path, os.O_CREAT | os.O_WRONLY); os.write(fd, b'half')", path=str(folder / file))
    return folder, rank1, save


@pytest.mark.parametrize("options", ["open_writers=30s"], indirect=True)
@both_modes
@late
def test_a_step_does_not_wait_for_late_files_of_other_ranks_each_is_added_at_its_close(mount, agent, writer, name, file):
    folder, rank1, save = begin(mount, agent, writer, name, file)
    before = time.monotonic()
    with pytest.raises(StopIteration):
        next(save)
    assert time.monotonic() - before < 10 and listed(mount) == [name]
    assert file not in os.listdir(folder)
    with pytest.raises(FileExistsError):
        os.close(os.open(folder / file, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    rank1.run("os.write(fd, b' and more')")
    assert file not in os.listdir(folder) and len(info(mount, name)["versions"]) == 1
    rank1.run("os.close(fd)")
    for _ in range(2):
        assert (folder / file).read_bytes() == b"half and more" and file in os.listdir(folder)
        assert len(info(mount, name)["versions"]) == 2
        mount.remount()
    assert mount.world.program.json("verify", mount.store)["bad"] == []


@pytest.mark.parametrize("options", ["open_writers=30s"], indirect=True)
@both_modes
@late
def test_a_late_file_whose_writer_is_killed_is_no_part_of_the_step(mount, agent, writer, name, file):
    folder, rank1, save = begin(mount, agent, writer, name, file)
    with pytest.raises(StopIteration):
        next(save)
    rank1.kill()
    wait_until(lambda: "its writer was killed" in (mount / ".ckptfs/errors").read_text(), what="a line in errors")
    error_line(mount, name, file)
    trees.write(folder / file, b"anew")
    mount.remount()
    assert (folder / file).read_bytes() == b"anew" and len(info(mount, name)["versions"]) == 2


@pytest.mark.parametrize("options", ["open_writers=30s"], indirect=True)
@both_modes
@pytest.mark.parametrize("writer,name,file", LATE[:1], ids=["checkpoint-500"])  # accelerate's begins when nothing else is open
def test_a_late_file_that_is_closed_while_its_commit_waits_for_another_is_in_the_step(mount, agent, writer, name, file):
    """The commit waits for another file meanwhile, and has not decided yet: it has the file, as that is then."""
    folder, rank1, save = begin(mount, agent, writer, name, file)
    other = agent()
    other.run("fd = os.open(path, os.O_CREAT | os.O_WRONLY); os.write(fd, b'x')", path=str(folder / "shard_2"))
    closing = threading.Thread(target=lambda: list(save))
    closing.start()
    wait_until(lambda: json.loads((mount / ".ckptfs/status.json").read_text())["committing"], what="the commit")
    rank1.run("os.close(fd)")
    other.run("os.close(fd)")
    closing.join()
    assert listed(mount) == [name]
    for _ in range(2):
        assert (folder / file).read_bytes() == b"half" and (folder / "shard_2").read_bytes() == b"x"
        mount.remount()


@pytest.mark.parametrize("options", ["open_writers=30s"], indirect=True)
@both_modes
@late
def test_a_program_that_a_rank_starts_does_not_close_its_late_file(mount, agent, writer, name, file):
    folder, rank1, save = begin(mount, agent, writer, name, file)
    rank1.run("import subprocess; subprocess.run(['true'], check=True)")
    before = time.monotonic()
    with pytest.raises(StopIteration):
        next(save)
    assert time.monotonic() - before < 10 and file not in os.listdir(folder)
    rank1.run("os.write(fd, b' and more'); os.close(fd)")
    mount.remount()
    assert (folder / file).read_bytes() == b"half and more"


@pytest.mark.parametrize("options", ["open_writers=1s"], indirect=True)
@both_modes
@late
def test_other_ways_to_complete_a_step_wait_for_late_files_as_for_any(mount, agent, commit, writer, name, file):
    folder, rank1, _ = begin(mount, agent, writer, name, file)
    with pytest.raises(OSError) as failed:
        commit(folder)
    assert failed.value.errno == errno.EBUSY and listed(mount) == []
    rank1.run("os.close(fd)")
    commit(folder)
    assert (folder / file).read_bytes() == b"half" and len(info(mount, name)["versions"]) == 1
