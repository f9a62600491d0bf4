"""File steps that a killed writer or a dead daemon left over, and that are reached by their exact name."""

import os

import pytest

from support import trees
from support.fixtures import both_modes
from support.mounting import wait_until
from test_files import NEW, OLD, OPEN_NEW, left, nothing_left, old, path  # noqa: F401 (fixtures)

pytestmark = pytest.mark.timeout(60)


def killed(agent, path, data):
    a = agent()
    a.run(OPEN_NEW + "; os.write(fd, data); os.fsync(fd)", path=str(path), data=data)
    a.kill()
    a.wait_gone(5)


@pytest.fixture
def part(mount, agent):
    """What a killed writer of model.pt in a folder left, found again after a remount too."""
    (mount / "run").mkdir()
    killed(agent, mount / "run/model.pt", NEW[:700])
    wait_until(lambda: os.listdir(mount / ".ckptfs/staged") == ["model.pt"], 5)
    return mount / "run/model.pt"


@both_modes
@pytest.mark.parametrize("remounted", [False, True])
def test_what_a_killed_writer_left_is_reached_by_its_exact_name_only(mount, part, remounted):
    if remounted:
        mount.remount()
    assert part.read_bytes() == NEW[:700] and part.stat().st_size == 700
    assert mount.listing("run") == [] and os.listdir(mount / ".ckptfs/staged") == ["model.pt"]
    assert left(mount) == NEW[:700]
    assert not (mount / "model.pt").exists() and not (mount / "run/model.pt2").exists()
    with pytest.raises(FileExistsError):
        os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY)


@both_modes
@pytest.mark.parametrize("remounted", [False, True])
def test_a_later_writer_goes_on_with_it(mount, part, agent, remounted):
    """As `wget -c` does."""
    if remounted:
        mount.remount()
    assert left(mount) == NEW[:700]
    a = agent()
    a.run("fd = os.open(path, os.O_WRONLY | os.O_APPEND); os.write(fd, data)", path=str(part), data=NEW[700:1000])
    assert mount.listing("run") == [] and os.listdir(mount / ".ckptfs/staged") == []
    a.kill()
    a.wait_gone(5)
    wait_until(lambda: os.listdir(mount / ".ckptfs/staged") == ["model.pt"], 5)
    b = agent()
    b.run("fd = os.open(path, os.O_WRONLY | os.O_APPEND); os.write(fd, data); os.close(fd)", path=str(part), data=NEW[1000:])
    assert part.read_bytes() == NEW and mount.listing("run") == ["model.pt"] and nothing_left(mount)
    mount.remount()
    assert part.read_bytes() == NEW and nothing_left(mount)


def test_a_save_from_the_start_takes_its_place(mount, part):
    trees.write(part, OLD)
    assert part.read_bytes() == OLD and mount.listing("run") == ["model.pt"] and nothing_left(mount)


@pytest.mark.parametrize("remounted", [False, True])
def test_the_verb_commit_publishes_it(mount, part, remounted):
    if remounted:
        mount.remount()
    mount.world.program("commit", mount.store, "model.pt")
    assert mount.listing("run") == ["model.pt"] and part.read_bytes() == NEW[:700] and nothing_left(mount)
    mount.remount()
    assert part.read_bytes() == NEW[:700]


def test_the_verb_commit_replaces_no_whole_file_by_one_that_is_cut_off(mount, path, old, agent):
    killed(agent, path, NEW[:700])
    wait_until(lambda: os.listdir(mount / ".ckptfs/staged") == ["model.pt"], 5)
    done = mount.world.program("commit", mount.store, "model.pt", check=False)
    assert done.returncode == 1 and "cut off" in done.stderr
    assert (mount / "model.pt").read_bytes() == OLD and left(mount) == NEW[:700]
    os.unlink(path)
    mount.world.program("commit", mount.store, "model.pt")
    assert (mount / "model.pt").read_bytes() == NEW[:700] and nothing_left(mount)


def test_the_verb_commit_says_so_where_its_folder_is_gone(mount, part):
    os.rmdir(mount / "run")
    assert left(mount) == NEW[:700], "rm -r of a run's folder does not stop at it, and it is kept"
    for _ in range(2):
        done = mount.world.program("commit", mount.store, "model.pt", check=False)
        assert done.returncode == 1 and "folder" in done.stderr
        (mount / "run").mkdir(exist_ok=True)
        assert not part.exists(), "another folder of that name is another"


def test_removing_the_exact_name_drops_it(mount, part):
    os.unlink(part)
    assert not part.exists() and nothing_left(mount)


def test_a_rename_of_it_publishes_it(mount, part):
    os.rename(part, mount / "run/old.pt.bak")
    assert mount.listing("run") == ["old.pt.bak"] and (mount / "run/old.pt.bak").read_bytes() == NEW[:700]
    assert not part.exists() and nothing_left(mount)


def test_another_file_takes_its_name_and_it_stays_a_session(mount, part):
    assert part.exists()
    trees.write(mount / "run/tmp", OLD)
    os.rename(mount / "run/tmp", part)
    assert part.read_bytes() == OLD and left(mount) == NEW[:700]
    os.unlink(part)
    assert part.read_bytes() == NEW[:700]


def test_abort_of_it_is_seen_by_its_name(mount, part):
    assert part.exists()
    mount.world.program("abort", "--yes", mount.store, "model.pt")
    assert not part.exists()
    wait_until(lambda: nothing_left(mount), 5)
    trees.write(part, OLD)
    assert part.read_bytes() == OLD


def test_it_moves_with_its_folder(mount, part):
    os.rename(mount / "run", mount / "moved")
    assert (mount / "moved/model.pt").read_bytes() == NEW[:700] and not part.exists()
    mount.remount()
    assert (mount / "moved/model.pt").read_bytes() == NEW[:700]


def test_one_that_was_renamed_while_it_was_written_is_left_under_its_last_name(mount, agent):
    a = agent()
    a.run(OPEN_NEW + "; os.write(fd, b'half')", path=str(mount / "a.pt"))
    os.rename(mount / "a.pt", mount / "b.pt")
    a.kill()
    a.wait_gone(5)
    wait_until(lambda: os.listdir(mount / ".ckptfs/staged") == ["b.pt"], 5)
    for _ in range(2):
        assert (mount / "b.pt").read_bytes() == left(mount, "b.pt") == b"half" and not (mount / "a.pt").exists()
        mount.remount()


@both_modes
def test_what_a_dead_daemon_left_is_kept_and_told_of_once(mount, path, old, agent):
    a, b = agent(), agent()
    a.run(OPEN_NEW + "; os.write(fd, new)", path=path, new=NEW)
    b.run(OPEN_NEW + "; os.write(fd, b'other')", path=str(mount / "other.npz"))
    mount.kill9()
    mount.start()
    assert (mount / "model.pt").read_bytes() == OLD
    assert mount.listing() == ["model.pt"]
    assert sorted(os.listdir(mount / ".ckptfs/staged")) == ["model.pt", "other.npz"]
    assert left(mount) == NEW
    lines = mount.errors()
    assert len([line for line in lines if "not completed" in line]) == 2
    mount.remount()
    assert mount.errors() == lines
    assert left(mount) == NEW
