"""A machine without inodes, quota or descriptors: saves fail with its error and a hint, nothing is lost or half there, and all goes on once there
is some again, without a new mount. test_full_disk.py is about blocks."""

import errno
import json
import os
import resource
import shutil
import subprocess

import pytest

from support import trees
from support.commits import assert_whole, error_line
from support.fixtures import both_modes, needs_root
from support.last_acts import accelerate, dcp, deepspeed, eformer, listed, megatron, nemo, snapshot, trainer
from support.mounting import LoopDisk, Mount, errno_name, wait_until

pytestmark = [pytest.mark.timeout(90), needs_root]


class Inodes:
    """An ext4 whose inodes can be used up."""
    error = "ENOSPC"

    def __init__(self, world):
        self.path = LoopDisk(world, mkfs=["mkfs.ext4", "-q", "-F", "-m", "0", "-N", "400"]).path
        self._junk = self.path / "junk"

    def use_up(self):
        self._junk.mkdir()
        for n in range(os.statvfs(self.path).f_favail):
            (self._junk / str(n)).touch()
        with pytest.raises(OSError):
            (self._junk / "more").touch()

    def give_back(self):
        subprocess.run(["rm", "-r", self._junk], check=True)


class Quota:
    """A subvolume of a btrfs, with a limit on what it may hold."""
    error = "EDQUOT"

    def __init__(self, world):
        self._disk = LoopDisk(world, 400, mkfs=["mkfs.btrfs", "-q"]).path
        self.path = self._disk / "limited"
        for command in (["subvolume", "create", self.path], ["quota", "enable", self._disk]):
            subprocess.run(["btrfs", *command], check=True, capture_output=True)

    def _limit(self, size):
        subprocess.run(["btrfs", "qgroup", "limit", size, "0/256", self._disk], check=True, capture_output=True)

    def use_up(self):
        os.sync()
        self._limit("100K")  # less than there is

    def give_back(self):
        self._limit("none")


@pytest.fixture(params=[Inodes, Quota])
def short(request, world):
    return request.param(world)


def refused(call, *errors):
    with pytest.raises(OSError) as e:
        call()
    assert errno_name(e.value) in errors, e.value


@both_modes
def test_without_inodes_or_quota_nothing_is_lost_and_all_goes_on_once_there_is_room(world, short, mode, ckptfs, commit, scratch):
    m = Mount.new(world, short.path / "store", mode=mode)
    made = {}
    for name in ("1000", "2000"):
        (m / name).mkdir()
        made[name] = trees.fill(m / name, seed=name)
    commit(m / "1000")
    (scratch / "out").mkdir()
    made["3000"] = trees.fill(scratch / "out", seed="3000")

    short.use_up()
    refused(lambda: commit(m / "2000"), short.error)
    error_line(m, "2000", short.error, "mend the cause, then complete the step again")
    refused(lambda: trees.write(m / "2000/more", bytes(1 << 20)), short.error)
    refused(lambda: (m / "4000").mkdir(), short.error)
    refused(lambda: trees.write(m / "1000/late", bytes(1 << 20)), short.error)
    refused(lambda: trees.write(m / "plain", bytes(1 << 20)), short.error)
    saved = ckptfs("save", m.store, scratch / "out", "3000", check=False)
    assert saved.returncode == 1 and os.strerror(getattr(errno, short.error)) in saved.stderr and "hint: " in saved.stderr, saved.stderr
    assert m.listing() == ["1000"]
    assert trees.files(m / "1000") == made["1000"]

    short.give_back()
    (m / "2000/more").unlink(missing_ok=True)
    commit(m / "2000")
    ckptfs("save", m.store, scratch / "out", "3000")
    assert {name: trees.files(m / name) for name in made} == made
    assert_whole(m, made["2000"], "2000")
    assert ckptfs.json("verify", m.store)["bad"] == []


# --- Acts that free room ------------------------------------------------------------------------------------------------


class Tmpfs:
    """A disk without a free inode, or without a free block: nothing at all is left, not even a reserve of the filesystem's own."""
    error = "ENOSPC"

    def __init__(self, world):
        self.path = world.scratch / "tmpfs"
        self.path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=800", "none", self.path], check=True)
        world.callback(subprocess.run, ["umount", "-l", self.path], check=True)
        self._junk = self.path / "junk"
        self._count = 0

    def _more(self):
        self._junk.mkdir(exist_ok=True)
        self._count += 1
        return self._junk / str(self._count)

    def give_back(self):
        shutil.rmtree(self._junk)


class TmpfsInodes(Tmpfs):
    def use_up(self):
        with pytest.raises(OSError):
            while True:
                self._more().touch()


class TmpfsBlocks(Tmpfs):
    def use_up(self):
        for size in (1 << 20, 4096):
            with open(self._more(), "wb", buffering=0) as f, pytest.raises(OSError):
                while True:
                    os.posix_fallocate(f.fileno(), os.fstat(f.fileno()).st_size, size)


class Ext4Inodes(Inodes):
    def use_up(self):
        self._junk.mkdir(exist_ok=True)
        with pytest.raises(OSError):
            for n in range(10000):
                (self._junk / f"{n}").touch()


class Ext4Blocks:
    error = "ENOSPC"

    def __init__(self, world):
        self._disk = LoopDisk(world)
        self.path, self._full = self._disk.path, False

    def use_up(self):
        if self._full:
            self._disk.make_room()
        self._full = True
        self._disk.fill_up()

    def give_back(self):
        self._disk.make_room()
        self._full = False


class FilledQuota(Quota):
    """A limit that is reached by writing."""

    def use_up(self):
        os.sync()
        shown = subprocess.run(["btrfs", "qgroup", "show", "--raw", "-f", self.path], check=True, capture_output=True, text=True).stdout
        self._limit(str(int(shown.splitlines()[-1].split()[1]) + (256 << 10)))
        with open(self.path / "junk", "ab", buffering=0) as f, pytest.raises(OSError) as e:
            while True:
                f.write(os.urandom(4096))
                os.fsync(f.fileno())
        assert errno_name(e.value) == "EDQUOT"


@pytest.fixture(params=[TmpfsInodes, TmpfsBlocks, Ext4Inodes, Ext4Blocks])
def nothing_free(request, world):
    return request.param(world)


@pytest.mark.parametrize("rest", [False, True], ids=["mounted", "at rest"])
@pytest.mark.parametrize("trash", ["7d", "0"])
def test_what_frees_room_needs_none(world, nothing_free, rest, trash, ckptfs, commit):
    disk, m = nothing_free, None
    m = Mount.new(world, disk.path / "store", options=[f"trash={trash}"])
    made = {}
    for n in range(1, 10):
        (m / f"{n}").mkdir()
        made[f"{n}"] = trees.fill(m / f"{n}", seed=str(n), files=3)
        commit(m / f"{n}")
    (m / "20").mkdir()
    trees.fill(m / "20", seed="20", files=3)
    ckptfs("pin", m / "4")
    ckptfs("rm", m / "5")
    path = sorted(made["6"])[0]
    [staged] = ckptfs.json("sessions", m.store)
    if rest:
        m.umount()
    where = m.store if rest else m.path
    acts = {"rm": ["rm", where, "1"], "rm --now": ["rm", "--now", "--yes", where, "2"], "unpin": ["unpin", where, "4"],
            "rm of a file": ["rm", where, f"6/{path}"], "abort": ["abort", "--yes", where, staged["id"]]}
    for name, act in acts.items():
        disk.use_up()
        done = ckptfs(*act, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr}"
    if not rest:
        disk.use_up()
        shutil.rmtree(m / "7")
    policy = {"keep": {"latest_n": {"n": 1}}}
    if rest:
        m.start()
    disk.give_back()
    (world.scratch / "policy").write_text(json.dumps(policy))
    ckptfs("policy", "set", m.store, world.scratch / "policy")
    if rest:
        m.umount()
    disk.use_up()
    assert ckptfs("retain", where, check=False).returncode == 0, "rotation by policy"
    if rest:
        m.start()
    assert m.listing() == ["9"]
    assert trees.files(m / "9") == made["9"]
    disk.give_back()
    commit_new(m, "30")
    assert sorted(m.listing()) == ["30", "9"]
    spares = [p for p in (m.store / "tmp").iterdir() if p.name.startswith("spare-")]
    assert len(spares) == 12 and all(p.stat().st_blocks * 512 >= 32 << 10 for p in spares), "the reserve was not made again"
    wait_until(lambda: ckptfs("verify", m.store, check=False).returncode == 0, what="what has expired is gone")


def test_step_is_removed_though_the_quota_is_used_up(world, ckptfs, commit):
    disk = FilledQuota(world)
    (world.scratch / "work").mkdir()  # LMDB's lock file is a mapping: btrfs ends who writes to one that has no room
    m = Mount.new(world, disk.path / "store", options=[f"work_dir={world.scratch / 'work'}"])
    for n in ("1", "2"):
        (m / n).mkdir()
        trees.fill(m / n, seed=n, files=3)
        commit(m / n)
    disk.use_up()
    refused(lambda: trees.write(m / "1/late", bytes(1 << 20)), "EDQUOT")
    ckptfs("rm", m / "1")
    assert m.listing() == ["2"]
    disk.use_up()
    shutil.rmtree(m / "2")
    assert m.listing() == []
    disk.give_back()
    commit_new(m, "3")
    assert m.listing() == ["3"]


def commit_new(m, name):
    (m / name).mkdir()
    trees.fill(m / name, seed=name, files=3)
    trees.write(m / name / ".finalize", b"")


# --- Descriptors --------------------------------------------------------------------------------------------------------


class Descriptors:
    """How many a daemon may have."""

    def __init__(self, mount):
        self._pid, self._before = mount.pid, resource.prlimit(mount.pid, resource.RLIMIT_NOFILE)

    def leave(self, count):
        used = {int(fd) for fd in os.listdir(f"/proc/{self._pid}/fd")}
        free = [n for n in range(len(used) + count + 1) if n not in used]
        resource.prlimit(self._pid, resource.RLIMIT_NOFILE, (free[count], self._before[1]))

    def give_back(self):
        resource.prlimit(self._pid, resource.RLIMIT_NOFILE, self._before)


def attempt(fds, count, act):
    """With so many descriptors left: the error, if it was refused for want of more."""
    fds.leave(count)
    try:
        act()
    except OSError as e:
        assert errno_name(e) == "EMFILE", e
        return e
    finally:
        fds.give_back()
    return None


@both_modes
@pytest.mark.parametrize("lacking", ["from the start", "for the commit"])
def test_without_descriptors_a_save_fails_or_is_whole(mount, ckptfs, commit, lacking):
    made, fds, failed = {}, Descriptors(mount), 0

    def stage(name):
        (mount / name).mkdir()
        made[name] = trees.fill(mount / name, seed=name, files=3)

    def save(name):
        stage(name)
        commit(mount / name)

    for count in range(16):
        name = str(1000 + count)
        if lacking == "for the commit":
            stage(name)
            if error := attempt(fds, count, lambda: commit(mount / name)):
                failed += 1
                if not error.filename:  # else the marker could not even be opened
                    error_line(mount, name, "EMFILE")
                assert name not in mount.listing()
                commit(mount / name)
        elif attempt(fds, count, lambda: save(name)):
            failed += 1
            assert name not in mount.listing()
            shutil.rmtree(mount / name, ignore_errors=True)
            save(name)
        assert mount.listing() == sorted(made) and trees.files(mount / name) == made[name]
    assert 0 < failed < 16
    mount.remount()
    assert {name: trees.files(mount / name) for name in mount.listing()} == made
    assert ckptfs.json("verify", mount.store)["bad"] == []


@both_modes
def test_clients_that_hold_all_descriptors_keep_what_they_have(mount, agent, commit):
    (mount / "1000").mkdir()
    fds, a = Descriptors(mount), agent()
    fds.leave(60)
    a.run("fds = []; path = step + '/%d'", step=str(mount / "1000"))
    assert a.errno_of("while len(fds) < 500: fds.append(os.open(path % len(fds), os.O_CREAT | os.O_RDWR, 0o644))") == "EMFILE"
    held = a.run("[os.write(fd, b'%d' % i) for i, fd in enumerate(fds)]; len(fds)")
    assert 10 < held < 100
    a.run("[os.close(fd) for fd in fds]")
    made = {str(n): b"%d" % n for n in range(held)}
    assert trees.files(mount / "1000") == made, "what could not be opened is there"
    commit(mount / "1000")
    assert_whole(mount, made)


@both_modes
def test_without_descriptors_no_folder_of_steps_is_replaced(mount, commit):
    """On disk it is empty, so that rename(2) itself would do it."""
    (mount / "runs/1000").mkdir(parents=True)
    made, failed = trees.fill(mount / "runs/1000", seed="1000", files=3), 0
    commit(mount / "runs/1000")
    (mount / "empty").mkdir()
    for count in range(12):
        mount.remount()  # else it knows the folder's id
        fds = Descriptors(mount)
        fds.leave(count)
        try:
            with pytest.raises(OSError) as e:
                os.rename(mount / "empty", mount / "runs")
        finally:
            fds.give_back()
        assert errno_name(e.value) in ("EMFILE", "ENOTEMPTY"), e.value
        failed += errno_name(e.value) == "EMFILE"
        assert trees.files(mount / "runs/1000") == made
    assert 0 < failed < 12


@pytest.mark.parametrize("writer, name", [(megatron, "iter_0000100"), (trainer, "checkpoint-500"), (accelerate, "checkpoint_3"), (eformer, "run-100"),
                                          (snapshot, "step_5"), (dcp, "checkpoint-100"), (deepspeed, "global_step20"), (nemo, "epoch=0-step=10")])
def test_without_descriptors_a_frameworks_last_act_completes_its_step_or_fails(mount, writer, name):
    """That nobody could look at the step does not mean that there is none."""
    failed, fds = 0, Descriptors(mount)
    for count in range(16):
        step = f"exp{count}/{name}"
        (mount / step).parent.mkdir()
        save = writer(str(mount / step))
        next(save)
        if attempt(fds, count, lambda: next(save, None)):
            failed += 1  # what follows the close may do it yet: the file is whole
            for _ in writer(str(mount / step)):
                pass
        assert step in listed(mount), f"nothing was said with {count} descriptors"
    assert 0 < failed < 16
