"""Changes of a committed step while what has a name in it is not what others have open by that name."""

import os

import pytest

from support import trees
from support.fixtures import both_modes

pytestmark = pytest.mark.timeout(60)


def write(path, flags):
    fd = os.open(path, flags)
    os.write(fd, b"NEW")
    os.close(fd)


HARD_LINK_CHANGES = {
    "O_TRUNC": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
    "write": lambda path: write(path, os.O_WRONLY),
    "append": lambda path: write(path, os.O_WRONLY | os.O_APPEND),
    "truncate": lambda path: os.truncate(path, 5),
}


@both_modes
@pytest.mark.parametrize("change", HARD_LINK_CHANGES)
@pytest.mark.parametrize("is_open_already", [False, True], ids=["first change", "reopened before"])
def test_change_of_a_file_with_two_names_that_somebody_reads_leaves_the_version_before(mount, commit, ckptfs, store, change, is_open_already):
    folder, data = mount / "1000", trees.content("linked", 200_000)
    folder.mkdir()
    trees.write(folder / "a", data)
    os.link(folder / "a", folder / "b")
    trees.write(folder / "config.json", b"{}")
    commit(folder)
    with open(folder / "a", "rb") as reader:
        if is_open_already:
            write(folder / "config.json", os.O_WRONLY | os.O_APPEND)
        HARD_LINK_CHANGES[change](folder / "a")
        now = (folder / "b").read_bytes()
        assert now != data and (folder / "a").read_bytes() == now
        assert reader.read() == data
        commit(folder)
        assert (folder / "a").read_bytes() == (folder / "b").read_bytes() == now
    mount.remount()
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes() == now
    assert ckptfs.json("verify", store)["bad"] == []
    ckptfs("rm", store, "1000")
    assert next((mount / ".ckptfs/trash").glob("1000*/a")).read_bytes() in (data, now)


@both_modes
def test_saving_over_a_step_of_which_a_fork_has_a_file_open(mount, agent, commit):
    """Under the name stands a copy since the commit; who saves anew must not write into what the fork has."""
    folder, a = mount / "1000", agent()
    folder.mkdir()
    a.run("""
fd = os.open(path, os.O_CREAT | os.O_WRONLY)
os.write(fd, b'first save')
child = os.fork()
if not child:
    time.sleep(60)
    os._exit(0)
os.close(fd)
""", path=str(folder / "shard.bin"))
    commit(folder)
    fd = os.open(folder / "shard.bin", os.O_WRONLY | os.O_TRUNC)
    os.write(fd, b"second")
    os.close(fd)
    assert (folder / "shard.bin").read_bytes() == b"second"
    commit(folder)
    a.run("os.kill(child, 9); os.waitpid(child, 0)")
    for _ in range(2):
        assert (folder / "shard.bin").read_bytes() == b"second"
        mount.remount()


def test_version_before_beside_the_moved_one_is_read_and_not_changed(mount, store, commit, ckptfs):
    """Both have the numbers of one step: a change would come to the other."""
    folder = mount / "1000"
    for text in (b"first", b"second"):
        (folder / "sub").mkdir(parents=True, exist_ok=True)
        trees.write(folder / "sub/shard.bin", text)
        trees.write(folder / "same.json", b"{}")
        commit(folder)
    os.rename(folder, mount / "2000")
    ckptfs("undelete", store, "1000")
    for _ in range(2):
        with pytest.raises(OSError, match="Read-only"):
            write(folder / "sub/shard.bin", os.O_WRONLY | os.O_TRUNC)
        assert (folder / "sub/shard.bin").read_bytes() == b"first" and (mount / "2000/sub/shard.bin").read_bytes() == b"second"
        assert "was moved to another name" in (mount / ".ckptfs/errors").read_text()
        mount.remount()
    ckptfs("rm", "--now", "--yes", store, "2000")
    write(folder / "sub/shard.bin", os.O_WRONLY | os.O_TRUNC)
    commit(folder)
    assert (folder / "sub/shard.bin").read_bytes() == b"NEW"
