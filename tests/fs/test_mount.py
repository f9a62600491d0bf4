"""Mounting and unmounting, in every way that people and systems do it."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support import trees
from support.agent import Agent
from support.fixtures import all_modes, needs_root
from support.mounting import Mount, daemon_environment, kill_quietly, mount_entry, mounts_below, wait_until
from support.preload import preload

pytestmark = pytest.mark.timeout(90)

NOBODY = 65534


@pytest.fixture
def point(scratch):
    path = scratch / "mnt"
    path.mkdir()
    return path


def holder(store):
    return json.loads((store / "holder.json").read_text())["pid"]


def gone(pid):
    """True once no process has this number (one that waits to be reaped counts as gone)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def background(world, ckptfs, store, point):
    """Mounts in the background with any command line; returns the daemon's pid."""
    def mount(*command, **kwargs):
        command = command or (ckptfs.path, "mount", store, point)
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=daemon_environment(world.scratch), check=False, **kwargs)
        pid = holder(store) if (store / "holder.json").exists() else 0
        if pid:
            world.callback(kill_quietly, pid)
        world.callback(subprocess.run, ["umount", "-l", point], capture_output=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        return pid
    return mount


def works(point):
    """A step saved, committed, seen."""
    (point / "1").mkdir()
    made = trees.fill(point / "1")
    trees.write(point / "1/.finalize", b"")
    return os.listdir(point) == ["1"] and trees.files(point / "1") == made


def test_background_mount_returns_once_the_mount_answers(background, point):
    pid = background()
    assert mount_entry(point)[0] == "fuse.ckptfs"
    assert works(point)
    assert os.getsid(pid) != os.getsid(0), "the daemon is in a session of its own"
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


def read_ahead(path):
    device = os.stat(path).st_dev
    return Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")


@all_modes
def test_the_kernel_reads_farther_ahead_than_by_itself(mount):
    """By 128 KiB each request to the daemon costs as much as what it brings."""
    ahead = read_ahead(mount.path)
    if not os.access(ahead, os.W_OK):
        pytest.skip("who mounts may not say how far the kernel reads ahead (not root, or /sys is read-only)")
    wait_until(lambda: ahead.read_text() == "2048\n", 10)
    mount.remount()
    wait_until(lambda: read_ahead(mount.path).read_text() == "2048\n", 10)


def test_background_mount_leaves_no_pipe_open_that_its_caller_waits_for(background, ckptfs, store, point):
    """capture_output waits for the end of both pipes: it only returns if the daemon does not hold them."""
    began = time.monotonic()
    background(ckptfs.path, "mount", store, point)
    assert time.monotonic() - began < 10


def test_mount_that_was_started_without_standard_descriptors_keeps_its_store(background, ckptfs, store, point, scratch):
    background("sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', ckptfs.path, "mount", store, point)
    works(point)
    second = scratch / "second"
    second.mkdir()
    done = ckptfs("mount", store, second, check=False)
    subprocess.run(["umount", "-l", second], capture_output=True, check=False)
    assert done.returncode == 1 and "mounted at" in done.stderr
    ckptfs("umount", point)


def test_foreground_mount_stays_and_ends_with_umount(mount):
    assert works(mount.path)
    mount.umount()


def test_mount_point_of_an_unmounted_store_is_empty_again(background, point, ckptfs):
    background()
    assert works(point)
    ckptfs("umount", point)
    assert os.listdir(point) == [] and mounts_below(point) == []


def test_store_can_be_mounted_elsewhere_the_moment_the_umount_verb_returns(background, point, ckptfs, store, scratch):
    elsewhere = scratch / "elsewhere"
    elsewhere.mkdir()
    pid = background()
    assert works(point)
    for here, there in 3 * [(point, elsewhere), (elsewhere, point)]:
        ckptfs("umount", here)
        ckptfs("mount", store, there)
        assert os.listdir(there) == ["1"]
    ckptfs("umount", point)
    wait_until(lambda: gone(pid), 5, "the daemon's end")


@needs_root
def test_paths_that_are_not_utf8_are_mounted_and_told(ckptfs, scratch):
    """In a name space of its own: programs that read the table of mounts stumble over such a path."""
    script = r"""
set -e
mount --make-rprivate /
cd "$1"
s=$(printf 'st\351') m=$(printf 'mn\351')
mkdir "$m"
trap '! mountpoint -q "$m" || umount -l "$m"' EXIT
"$0" mount "$s" "$m"
mkdir "$m/1"
touch "$m/1/.finalize"
cat "$m/.ckptfs/status.json"
"$0" status --json "$s"
"$0" info --json "$s"
"$0" umount "$m"
"$0" mount "$s" "$m"
ls "$m/1"
"$0" umount "$m"
"""
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script, ckptfs.path, scratch], capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    at, answers = 0, []
    text = done.stdout.decode()
    while at < len(text):
        answer, at = json.JSONDecoder().raw_decode(text, at)
        answers.append(answer)
        at += 1
    assert [a["mountpoint"] for a in answers[:2]] == [f"{scratch}/mn\ufffd"] * 2
    assert [a["mountpoint"] for a in answers[2]["mounts"]] == [f"{scratch}/mn\ufffd"] and answers[2]["path"] == f"{scratch}/st\ufffd"


def test_umount_verb_says_what_keeps_a_mount_busy(background, point, ckptfs):
    background()
    (point / "log").write_text("x")
    with open(point / "log") as held:
        done = ckptfs("umount", point, check=False)
        assert done.returncode == 1 and done.stderr.startswith("ckptfs: ") and str(point) in done.stderr
        assert held.read() == "x"
    ckptfs("umount", point)


def test_umount_verb_waits_for_a_mount_that_is_slow_to_answer(world, mount, ckptfs):
    """It may be in the middle of a commit."""
    shim = preload(world, "short_timeouts")  # may skip: before anything is stopped
    os.kill(mount.pid, signal.SIGSTOP)
    umount = subprocess.Popen([*shim, ckptfs.path, "umount", mount.path], stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(1.5)
        assert umount.poll() is None and mount.mounted()
    finally:
        os.kill(mount.pid, signal.SIGCONT)
    assert "does not answer" in umount.communicate(timeout=20)[1]
    assert umount.returncode == 0 and not mount.mounted()


def test_umount_of_what_is_not_mounted(ckptfs, point):
    done = ckptfs("umount", point, check=False)
    assert done.returncode == 1 and done.stderr.startswith("ckptfs: ")


@needs_root
def test_plain_umount_ends_the_daemon_within_5_seconds(background, point):
    pid = background()
    assert works(point)
    (point / "2").mkdir()
    trees.fill(point / "2")
    subprocess.run(["umount", point], check=True)
    wait_until(lambda: gone(pid), 5, "the daemon's end")


@needs_root
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_daemon_and_unmounts(background, point, store, sig):
    pid = background()
    assert works(point)
    os.kill(pid, sig)
    wait_until(lambda: gone(pid), 5, "the daemon's end")
    assert mounts_below(point) == []
    background()
    assert os.listdir(point) == ["1"]


@needs_root
def test_ls_right_after_umount_and_mount_again(background, point, ckptfs):
    for n in range(3):
        background()
        (point / str(n)).mkdir()
        trees.write(point / str(n) / ".finalize", b"")
        ckptfs("umount", point)
    background()
    assert sorted(os.listdir(point)) == ["0", "1", "2"]


# --- mount(8) ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def mount8(ckptfs, scratch):
    """mount(8) finds mount.fuse.ckptfs in /sbin only, so the tests put a name there for their time, if nobody has."""
    if os.geteuid() != 0:
        pytest.skip("only root can put mount.fuse.ckptfs where mount(8) looks")
    helper = Path("/sbin/mount.fuse.ckptfs")
    ours = not os.path.lexists(helper)
    if ours:
        helper.symlink_to(ckptfs.path)
    else:
        assert helper.resolve() == ckptfs.path, f"{helper} is of another installation"
    yield ["mount", "-t", "fuse.ckptfs"]
    if ours:
        helper.unlink(missing_ok=True)


def test_mount8_with_the_options_that_fstab_brings(background, mount8, store, point):
    background(*mount8, "-o", "rw,noatime,nofail,_netdev,x-systemd.automount,x-foo=bar,nosuid,nodev,dev,suid,defaults,open_writers=2s", store, point)
    kind, options, _, source = mount_entry(point)
    assert kind == "fuse.ckptfs"
    assert "nosuid" in options and "nodev" in options, "dev and suid are never granted"
    assert source == str(store)
    assert works(point)
    subprocess.run(["umount", point], check=True)


def test_line_in_fstab(background, mount8, store, point, scratch):
    table = scratch / "fstab"
    table.write_text(f"{store}  {point}  fuse.ckptfs  defaults,nofail,x-systemd.requires=network.target,open_writers=3s  0  0\n")
    background("mount", "-T", table, point)
    assert mount_entry(point)[0] == "fuse.ckptfs" and works(point)
    subprocess.run(["umount", point], check=True)


def test_mount8_reports_what_is_wrong(mount8, store, point):
    done = subprocess.run([*mount8, "-o", "nonsense", store, point], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "ckptfs: " in done.stderr and "nonsense" in done.stderr
    assert mounts_below(point) == []


def test_helper_is_chosen_by_the_programs_name(background, ckptfs, scratch, store, point):
    helper = scratch / "mount.fuse.ckptfs"
    helper.symlink_to(ckptfs.path)
    background(helper, store, point, "-o", "rw,dev,suid,_netdev")
    assert works(point)


def test_paths_of_ours_inside_the_mount_point_are_refused(ckptfs, store, point, scratch):
    (point / "work").mkdir()
    (scratch / "link").symlink_to(point)
    for option in (f"work_dir={point}", f"work_dir={point}/work", f"work_dir={scratch}/link", f"log={point}/a.log"):
        done = ckptfs("mount", store, point, "-o", option, check=False)
        subprocess.run(["umount", "-l", point], capture_output=True, check=False)
        assert done.returncode == 1 and "inside the mount point" in done.stderr, option
    assert os.listdir(point) == ["work"] and not store.exists()


def test_where_the_index_cannot_be_is_said(mount, ckptfs, scratch):
    """And not that the store is none."""
    point = scratch / "second"
    point.mkdir()
    for work_dir, said in ((scratch / "absent", "work_dir does not exist"), (mount.path, "the index needs a local disk")):
        done = ckptfs("mount", scratch / "another", point, "-o", f"work_dir={work_dir}", check=False)
        assert done.returncode == 1 and f"{work_dir}: {said}" in done.stderr and "hint: " in done.stderr
    made = subprocess.run([ckptfs.path, "init", mount / "store"], capture_output=True, check=False)
    assert made.returncode == 0, made.stderr
    done = ckptfs("mount", mount / "store", point, check=False)
    assert done.returncode == 1 and "the index needs a local disk" in done.stderr and "work_dir=DIR" in done.stderr


# --- Read-only and limited --------------------------------------------------------------------------------------------


def test_read_only_mount_beside_a_read_write_one(world, mount, stage, commit, store, scratch):
    made = stage("1")
    commit(mount / "1")
    stage("9")
    beside = Mount.new(world, store, path=scratch / "beside", options=["ro"])
    assert beside.listing() == ["1"] and trees.files(beside / "1") == made
    assert "ro" in mount_entry(beside.path)[1]
    assert not (beside / "9").exists(), "a staged step is the other mount's own"
    for change in (lambda: (beside / "2").mkdir(), lambda: trees.write(beside / "f", b"x"), lambda: trees.write(beside / "1/.finalize", b"")):
        with pytest.raises(OSError):
            change()
    again = stage("2", seed="two")
    commit(mount / "2")
    wait_until(lambda: beside.listing() == ["1", "2"], 10, "the sight of a new step beside")
    assert trees.files(beside / "2") == again
    beside.umount()
    assert mount.listing() == ["1", "2"] and trees.files(mount / "9")


def test_read_only_mount_changes_nothing_in_the_store(world, mount, stage, commit, store, scratch):
    stage("1")
    commit(mount / "1")
    stage("9")
    mount.umount()
    before = trees.describe(store)
    beside = Mount.new(world, store, path=scratch / "beside", options=["ro"])
    assert beside.listing() == ["1"]
    trees.files(beside / "1")
    beside.umount()
    after = trees.describe(store)
    for tree in (before, after):
        tree.pop("index/lock.mdb", None)  # readers of LMDB sign in there
    assert after == before


def test_read_only_mount_of_no_store_makes_none(ckptfs, scratch, point):
    done = ckptfs("mount", scratch / "absent", point, "-o", "ro", check=False)
    assert done.returncode == 1 and done.stderr.startswith("ckptfs: ")
    assert not (scratch / "absent").exists()


def test_without_fuse_device_the_reason_is_said(world, ckptfs, store, point):
    if os.geteuid() != 0:
        pytest.skip("only root can hide /dev/fuse")
    script = 'mount --make-rprivate / && mount -t tmpfs none /dev && exec "$@"'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", ckptfs.path, "mount", store, point], capture_output=True, text=True, check=False,
                          timeout=30)
    assert done.returncode == 1
    assert done.stderr.startswith("ckptfs: ") and "/dev/fuse" in done.stderr


def test_fuse_device_that_another_user_may_not_open_is_said(nobody):
    def closed(*args):
        """With a device of their own, which is root's alone."""
        script = 'mount --make-rprivate / && cp -a /dev/fuse "$0" && chmod 600 "$0" && mount --bind "$0" /dev/fuse && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"'
        return subprocess.run(["unshare", "--mount", "sh", "-c", script, nobody.home / "fuse", nobody.home / "ckptfs", *args], capture_output=True, text=True,
                              check=False, timeout=30)
    done = closed("mount", nobody.store, nobody.mnt)
    assert done.returncode == 1 and done.stderr.startswith("ckptfs: /dev/fuse: "), done.stderr
    assert "chmod 666 /dev/fuse" in done.stderr and "kernel refused" not in done.stderr
    [check] = [c for c in json.loads(closed("doctor", "--json").stdout)["checks"] if c["name"] == "fuse"]
    assert not check["ok"] and "chmod 666 /dev/fuse" in check["hint"]


@needs_root
def test_why_the_kernel_refuses_a_mount_is_said_in_the_background_too(world, ckptfs, store, point):
    """The log is syslog then, which who mounts does not see."""
    done = subprocess.run([*preload(world, "no_mount"), ckptfs.path, "mount", store, point], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1 and "the kernel refused the mount" in done.stderr
    assert os.strerror(errno.ENAMETOOLONG) in done.stderr


@needs_root
def test_io_uring_switched_off_while_a_mount_starts_is_gone_without(world, store, commit):
    m = Mount.new(world, store, mode="uring", prefix=preload(world, "uring_shim"))
    (m / "1000").mkdir()
    (m / "1000/a").write_text("x")
    commit(m / "1000")
    assert m.listing() == ["1000"]
    m.umount()


@needs_root
@pytest.mark.timeout(120)
def test_few_file_descriptors_are_enough_for_many_open_files(world, store, commit):
    """RLIMIT_NOFILE 1024 and 3,000 known files: inodes must not cost a descriptor each."""
    m = Mount.new(world, store, prefix=["prlimit", "--nofile=1024:1024"])
    (m / "1").mkdir()
    for i in range(3000):
        trees.write(m / f"1/{i}", b"%d" % i)
    commit(m / "1")
    for p in range(3000):
        os.stat(m / f"1/{p}")
    assert len(os.listdir(f"/proc/{m.pid}/fd")) < 600
    assert trees.files(m / "1") == {str(i): b"%d" % i for i in range(3000)}


# --- Another user -----------------------------------------------------------------------------------------------------


@pytest.fixture
def nobody(world, ckptfs, scratch):
    """Runs ckptfs as a user without rights, from a place where that user can reach it."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    home = scratch / "home"
    home.mkdir()
    program = home / "ckptfs"
    shutil.copy2(ckptfs.path, program)
    for path in (home, program):
        os.chown(path, NOBODY, NOBODY)
    (home / "mnt").mkdir()
    os.chown(home / "mnt", NOBODY, NOBODY)
    environment = daemon_environment(scratch) | {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
    os.chmod(scratch, 0o777)

    def run(*args, check=True):
        done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, timeout=60, user=NOBODY, group=NOBODY, extra_groups=[],
                              cwd="/", env=environment, check=False)
        assert not check or done.returncode == 0, f"{args}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    device = os.stat("/dev/fuse").st_mode
    if device & 0o006 != 0o006:  # udev gives it to everybody; there may be none here
        os.chmod("/dev/fuse", 0o666)
        world.callback(os.chmod, "/dev/fuse", device & 0o777)
    world.callback(subprocess.run, ["umount", "-l", home / "mnt"], capture_output=True)
    run.home, run.store, run.mnt = home, home / "store", home / "mnt"
    return run


def said(done):
    """What ckptfs has said; fusermount3 says its own before."""
    return "\n".join(line for line in done.stderr.splitlines() if not line.startswith("fusermount3: "))


def test_a_name_that_completes_steps_can_be_written_where_the_daemon_may_not_read(world, nobody):
    nobody("mount", nobody.store, nobody.mnt)
    world.callback(kill_quietly, holder(nobody.store))
    client = Agent(uid=NOBODY)
    world.callback(client.close)
    client.run("""
os.mkdir(m + '/dark')
os.mkdir(m + '/dark/inner', 0)
for name in ('latest', 'metadata.json', '.metadata.tmp'):
    with open(m + '/dark/' + name, 'w') as f:
        f.write('inner')
os.rename(m + '/dark/.metadata.tmp', m + '/dark/.metadata')
""", m=str(nobody.mnt))
    assert sorted(client.run("os.listdir(m + '/dark')")) == [".metadata", "inner", "latest", "metadata.json"]


def test_another_user_mounts_through_fusermount_with_the_daemons_own_io(world, nobody):
    done = nobody("mount", nobody.store, nobody.mnt)
    pid = holder(nobody.store)
    world.callback(kill_quietly, pid)
    assert "passthrough" in done.stderr, "it says that the kernel's passthrough is not to be had"
    assert mount_entry(nobody.mnt)[0] == "fuse.ckptfs"
    client = Agent(uid=NOBODY)
    world.callback(client.close)
    client.run("""
os.mkdir(m + '/1', 0o700)
fd = os.open(m + '/1/f', os.O_CREAT | os.O_WRONLY, 0o640)
os.write(fd, b'x' * 3_000_000)
os.close(fd)
os.chmod(m + '/1/f', 0o4604)
os.utime(m + '/1/f', ns=(1, 1_000_000_000_000_000_001))
open(m + '/closed', 'w').close()
os.chmod(m + '/closed', 0)
fd = os.open(m + '/1/.finalize', os.O_CREAT | os.O_WRONLY)
os.close(fd)
""", m=str(nobody.mnt))
    look = "(sorted(os.listdir(m)), os.stat(m + '/1/f').st_mode & 0o7777, os.stat(m + '/1/f').st_mtime_ns, os.stat(m + '/1/f').st_uid)"
    seen = (["1", "closed"], 0o4604, 1_000_000_000_000_000_001, NOBODY)
    assert client.run(look) == seen
    status = client.run("open(m + '/.ckptfs/status.json').read()")
    assert json.loads(status)["passthrough"] is False
    with pytest.raises(PermissionError):
        os.listdir(nobody.mnt)  # not even root, without allow_other
    nobody("umount", nobody.mnt)
    wait_until(lambda: gone(pid), what="the end of a process that has closed its store")
    nobody("mount", nobody.store, nobody.mnt)
    world.callback(kill_quietly, holder(nobody.store))
    assert client.run(look) == seen
    assert client.run("len(open(m + '/1/f', 'rb').read())") == 3_000_000
    assert client.errno_of("os.open(m + '/closed', os.O_RDONLY)") == "EACCES"
    assert client.run("[os.access(m + name, how) for name, how in [('/closed', os.R_OK), ('/1/f', os.R_OK), ('/1/f', os.X_OK), ('/1', os.X_OK)]]") == [False, True, False, True]
    nobody("umount", nobody.mnt)


def test_file_steps_and_trackers_of_who_is_not_root(world, nobody):
    nobody("mount", nobody.store, nobody.mnt)
    world.callback(kill_quietly, holder(nobody.store))
    writer, reader = Agent(uid=NOBODY), Agent(uid=NOBODY)
    world.callback(writer.close)
    world.callback(reader.close)
    for name, mode in (("model.pt", 0o600), ("locked.pt", 0o200), ("tracker", 0o644)):
        path = str(nobody.mnt / name)
        fresh = "fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode); os.write(fd, data)"
        writer.run(fresh + "; os.close(fd)", path=path, mode=mode, data=b"old")
        assert reader.run("os.stat(path).st_mode & 0o777", path=path) == mode
        if name == "locked.pt":
            continue
        writer.run(fresh, data=b"new")
        assert reader.run("open(path, 'rb').read()", path=path) == b"old"
        writer.run("os.close(fd)")
        assert reader.run("open(path, 'rb').read()", path=path) == b"new"
    writer.run("os.chmod(path, 0o444)")
    assert writer.errno_of("os.open(path, os.O_WRONLY | os.O_TRUNC)") == "EACCES"
    writer.run(fresh, path=str(nobody.mnt / "model.pt"), data=b"never")
    writer.kill()
    writer.wait_gone(5)
    wait_until(lambda: reader.run("os.listdir(m + '/.ckptfs/staged')", m=str(nobody.mnt)) == ["model.pt"], 5)
    assert reader.run("open(m + '/model.pt', 'rb').read()") == b"new"
    nobody("umount", nobody.mnt)


def test_who_is_not_root_writes_through_a_descriptor_whatever_the_mode_says(world, nobody):
    nobody("mount", nobody.store, nobody.mnt)
    world.callback(kill_quietly, holder(nobody.store))
    client = Agent(uid=NOBODY)
    world.callback(client.close)
    made = """
for name, mode in (('r', 0o444), ('w', 0o222), ('none', 0)):
    fd = os.open(f'{d}/{name}', os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    os.write(fd, b'0123456789')
    os.close(fd)
fd = os.open(f'{d}/later', os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
os.write(fd, b'0123456789')
os.fchmod(fd, 0o444)
os.ftruncate(fd, 5)
os.posix_fallocate(fd, 0, 20)
os.copy_file_range(fd, fd, 5, 0, 10)
os.close(fd)
[(os.stat(f'{d}/{name}').st_size, os.stat(f'{d}/{name}').st_mode & 0o777) for name in ('r', 'w', 'none', 'later')], open(d + '/later', 'rb').read()
"""
    seen = ([(10, 0o444), (10, 0o222), (10, 0), (20, 0o444)], b"01234\0\0\0\0\0" + b"01234" + bytes(5))
    for folder in ("plain", "1000"):
        d = f"{nobody.mnt}/{folder}"
        client.run("os.umask(0); os.mkdir(d)", d=d)
        assert client.run(made, d=d) == seen
        assert client.errno_of("os.open(d + '/r', os.O_WRONLY)", d=d) == "EACCES"
        client.run("os.chmod(d + '/w', 0o644); os.chmod(d + '/none', 0o644)", d=d)
    client.run("os.close(os.open(d + '/.finalize', os.O_CREAT | os.O_WRONLY))", d=f"{nobody.mnt}/1000")
    assert client.run("sorted(os.listdir(m))", m=str(nobody.mnt)) == ["1000", "plain"]
    nobody("umount", nobody.mnt)


def test_another_users_store_and_mount_point_are_refused_without_permission(nobody, scratch):
    for path in ("their-store", "their-mnt"):
        (scratch / path).mkdir(mode=0o755)
    for store, mnt in ((scratch / "their-store", nobody.mnt), (nobody.store, scratch / "their-mnt")):
        done = nobody("mount", store, mnt, check=False)
        assert done.returncode == 1 and said(done).startswith("ckptfs: ")
    assert mounts_below(scratch) == []


def test_allow_other_without_permission_in_fuse_conf_is_said(nobody):
    conf = Path("/etc/fuse.conf")
    if conf.exists() and any(line.strip() == "user_allow_other" for line in conf.read_text().splitlines()):
        pytest.skip("/etc/fuse.conf of this machine has user_allow_other")
    done = nobody("mount", nobody.store, nobody.mnt, "-o", "allow_other", check=False)
    assert done.returncode == 1
    assert said(done).startswith("ckptfs: ") and "user_allow_other" in done.stderr


@needs_root
def test_other_users_see_nothing_without_allow_other(mount, agent):
    assert agent(uid=NOBODY).errno_of("os.listdir(m)", m=str(mount.path)) == "EACCES"


@needs_root
def test_kernel_checks_modes_where_others_get_in_and_leaves_it_to_the_disk_else(world, store, agent):
    m = Mount.new(world, store)
    trees.write(m / "closed", b"x", 0)
    trees.write(m / "program", b"x", 0o711)
    assert "default_permissions" not in mount_entry(m.path)[2]
    assert (m / "closed").read_bytes() == b"x", "root may, as on any disk"
    assert [os.access(m / name, os.X_OK) for name in ("closed", "program", ".")] == [False, True, True]
    m.remount(options=["allow_other"])
    assert "default_permissions" in mount_entry(m.path)[2]
    other = agent(uid=NOBODY)
    for code in ("open(m + '/closed')", "open(m + '/program')", "os.unlink(m + '/closed')", "os.mkdir(m + '/d')"):
        assert other.errno_of(code, m=str(m.path)) == "EACCES"
    assert other.run("[os.access(m + '/program', how) for how in (os.R_OK, os.X_OK)]", m=str(m.path)) == [False, True]


@needs_root
@needs_root
@all_modes
def test_a_change_by_another_user_takes_setuid_and_setgid_off(world, store, agent, mode):
    m = Mount.new(world, store, mode=mode, options=["allow_other"])
    other, root = agent(uid=NOBODY), agent()
    ways = ["os.truncate(f, 3)", "fd = os.open(f, os.O_WRONLY); os.ftruncate(fd, 3); os.close(fd)", "os.close(os.open(f, os.O_WRONLY | os.O_TRUNC))",
            "fd = os.open(f, os.O_WRONLY); os.write(fd, b'x'); os.close(fd)"]
    for i, way in enumerate(ways):
        for who, left in ((other, 0o777), (root, 0o6777)):
            f = m / f"{i}-{who is other}"
            f.write_bytes(b"0123456789")
            os.chmod(f, 0o6777)
            who.run(way, f=str(f))
            assert f.stat().st_mode & 0o7777 == left, way


def test_owner_options_replace_owners_and_modes(world, store):
    m = Mount.new(world, store, options=["allow_other", f"uid={NOBODY}", f"gid={NOBODY}", "umask=027"])
    trees.write(m / "f", b"x", 0o666)
    st = os.stat(m / "f")
    assert (st.st_uid, st.st_gid, st.st_mode & 0o777) == (NOBODY, NOBODY, 0o640)


# --- Guards -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def refused(ckptfs):
    """A command that must fail with 1; its error and hint."""
    def run(*words):
        done = ckptfs(*words, check=False)
        assert done.returncode == 1 and done.stdout == "", done
        error, hint = done.stderr.splitlines()
        return error.removeprefix("ckptfs: "), hint.removeprefix("hint: ")
    return run


def test_a_mount_point_with_entries_is_refused_and_they_are_named(background, ckptfs, store, point, refused):
    """A save went into the bare directory: mounted over it, nobody would see it again."""
    for name in "step_700", "step_600", "a", "z", ".hidden":
        (point / name).mkdir()
    error, hint = refused("mount", store, point)
    assert error == f"{point} is not empty: .hidden, a, step_600 and 2 more" and "-o nonempty" in hint
    for name in "a", "z", ".hidden":
        (point / name).rmdir()
    assert refused("mount", store, point)[0] == f"{point} is not empty: step_600, step_700"
    assert not mount_entry(point) and sorted(os.listdir(point)) == ["step_600", "step_700"]
    background(ckptfs.path, "mount", "-o", "nonempty", store, point)
    assert works(point)
    ckptfs("umount", point)
    assert sorted(os.listdir(point)) == ["step_600", "step_700"]


def test_operands_the_wrong_way_round_are_named_and_change_nothing(background, ckptfs, store, point, refused):
    background()
    assert works(point)
    ckptfs("umount", point)
    error, hint = refused("mount", point, store)
    assert error == f"{store} is a store, and {point} is not" and hint == f"did you mean `ckptfs mount {store} {point}`?"
    assert refused("mount", "-o", "nonempty", point, store)[1] == hint
    assert os.listdir(point) == [] and not mount_entry(store)
    second = point.parent / "second"
    ckptfs("init", second)
    assert " is not empty: " in refused("mount", second, store)[0], "two stores"


def test_umount_is_refused_while_a_step_is_being_saved(background, ckptfs, point, refused):
    """A trainer that is between two files has none open: it would write the rest into the bare directory."""
    background()
    (point / "step_500").mkdir()
    trees.write(point / "step_500/shard0.bin", b"x")
    for words in [], ["--now"]:
        error, hint = refused("umount", *words, point)
        assert error.startswith(f"{point}: step_500 is being saved: it was written ") and error.endswith(" ago") and "--force" in hint
    (point / "step_600").mkdir()
    error, _ = refused("umount", point)
    assert "step_600 is being saved" in error and error.endswith("ago, and 1 more")
    assert mount_entry(point)
    trees.write(point / "step_500/.finalize", b"")
    assert "step_600 is being saved" in refused("umount", point)[0]
    done = ckptfs("umount", "--force", point)
    assert "step_600 is not complete yet" in done.stderr and not mount_entry(point)


def test_umount_of_a_store_whose_steps_are_complete_asks_nothing(background, ckptfs, point):
    background()
    assert works(point)
    assert ckptfs("umount", point).stderr == ""


def test_nobody_is_sent_to_a_mount_that_does_not_answer(background, ckptfs, store, point, scratch, refused):
    pid = background()
    second = scratch / "second"
    second.mkdir()
    error, hint = refused("mount", store, second)
    assert f"mounted at {point} by process {pid} " in error and hint.startswith("use that mount")
    os.kill(pid, signal.SIGSTOP)
    try:
        error, hint = refused("mount", store, second)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert error.endswith("which does not answer") and "use that mount" not in hint
    ckptfs("umount", point)


# --- The daemon's log -------------------------------------------------------------------------------------------------


def log_lines(path):
    return [line.split(" ckptfs: ", 1)[1] for line in path.read_text().splitlines()]


def save(m, name):
    (m / name).mkdir()
    trees.write(m / name / "a.bin", b"x" * 3000)
    trees.write(m / name / ".finalize", b"")


def test_the_log_has_a_line_for_each_act(world, store, scratch, ckptfs):
    """Mount, commit, deletion, undeletion, retention, the trash, an error, umount: in this order."""
    log = scratch / "daemon.log"
    m = Mount.new(world, store, options=[f"log={log}"])
    for name in "step_1", "step_2", "step_3":
        save(m, name)
    ckptfs("rm", m.path, "step_1")
    ckptfs("undelete", m.path, "step_1")
    shutil.rmtree(m / "step_1")
    (scratch / "policy.json").write_text('{"keep": {"latest_n": {"n": 1}}}')
    ckptfs("policy", "set", m.path, scratch / "policy.json")
    ckptfs("retain", m.path)
    ckptfs("rm", m.path, "--now", "--yes", "trash/step_1")
    (m / "step_4").mkdir()
    with pytest.raises(OSError):
        trees.write(m / "step_4/.finalize", b"{")
    m.umount()
    wanted = [f"mounted {store} at {m.path}: 0 steps, 0 unfinished saves, ", "committed step_1: 1 file, 2.9KiB, ", "committed step_2: ", "committed step_3: ",
              "deleted step_1: to the trash, 2.9KiB", "undeleted step_1", "deleted step_1: to the trash, 2.9KiB",
              "deleted step_", "retention moved 1 step, 2.9KiB to the trash",
              "removed step_1 from the trash: 2.9KiB", "warn: step_4: ", f"unmounted {m.path}"]
    lines, at = log_lines(log), 0
    for want in wanted:
        at = next((i + 1 for i in range(at, len(lines)) if lines[i].startswith(want)), None)
        assert at, f"no {want!r} in its place in:\n" + "\n".join(lines)
    assert "event marker" in next(line for line in lines if line.startswith("committed step_1"))


def test_log_level_warn_leaves_out_what_went_well(world, store, scratch):
    log = scratch / "daemon.log"
    m = Mount.new(world, store, options=[f"log={log}", "log_level=warn"])
    save(m, "1")
    (m / "2").mkdir()
    with pytest.raises(OSError):
        trees.write(m / "2/.finalize", b"{")
    m.umount()
    assert [line.split(":")[:2] for line in log_lines(log)] == [["warn", " 2"]]


def test_a_log_that_nobody_reads_holds_nobody_up(world, store, scratch):
    """A full pipe stands for a disk that hangs: saves go on, the mount ends, and what was dropped is said once there is room."""
    log = scratch / "pipe"
    os.mkfifo(log)
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    world.callback(os.close, reader)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    m = Mount.new(world, store, options=[f"log={log}"])
    for i in range(60):
        save(m, f"step_{i}")
    assert len(m.listing()) == 60
    m.umount()
    text = b""
    while chunk := os.read(reader, 65536):
        text += chunk
    assert 4096 >= len(text) > 2000 and b"committed step_0" in text
