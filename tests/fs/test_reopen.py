"""Changes of a committed step: it is reopened on this mount, out of every listing, until it is completed, removed or quiet."""

import contextlib
import errno
import os
import shutil
import subprocess
import threading
import time

import pytest

from support import trees
from support.fixtures import SLOW, both_modes, needs_root
from support.mounting import LoopDisk, Mount, wait_until

pytestmark = pytest.mark.timeout(60)

quiet = pytest.mark.parametrize("options", ["commit_quiet=1s"], indirect=True)
W0, W1 = "params/layer_0/w0.bin", "params/layer_1/w1.bin"


@pytest.fixture(params=["just committed", "read from the store"])
def origin(request):
    """A step that this mount committed, or one that it found."""
    return request.param


found = pytest.mark.parametrize("origin", ["read from the store"], indirect=True)


@pytest.fixture
def base(mount, commit, origin):
    """Committed steps 900 and 1000; of 1000 (path, {path in it: bytes})."""
    for name in ("900", "1000"):
        (mount / name).mkdir()
        made = trees.fill(mount / name, seed=name, size=200_000, files=3)
        commit(mount / name)
    if origin == "read from the store":
        mount.remount()
    return mount / "1000", made


@pytest.fixture
def one(mount, commit):
    """The same, just committed."""
    (mount / "1000").mkdir()
    made = trees.fill(mount / "1000", size=200_000, files=3)
    commit(mount / "1000")
    return mount / "1000", made


def patch(path, data=b"NEW", at=0):
    with open(path, "r+b", buffering=0) as f:
        os.pwrite(f.fileno(), data, at)


def append(path, data=b"NEW"):
    with open(path, "ab") as f:
        f.write(data)


def change_write(step, files):
    patch(step / W0, at=5)
    files[W0] = files[W0][:5] + b"NEW" + files[W0][8:]


def change_append(step, files):
    append(step / W0)
    files[W0] += b"NEW"


def change_small(step, files):
    append(step / "config.json")
    files["config.json"] += b"NEW"


def change_truncate(step, files):
    os.truncate(step / W0, 10)
    files[W0] = files[W0][:10]


def change_trunc_open(step, files):
    trees.write(step / W0, b"NEW")
    files[W0] = b"NEW"


def change_rename(step, files):
    os.rename(step / W0, step / "params/other.bin")
    files["params/other.bin"] = files.pop(W0)


def change_rename_dir(step, files):
    os.rename(step / "params/layer_0", step / "params/layer_9")
    for path in [p for p in files if p.startswith("params/layer_0/")]:
        files[path.replace("layer_0", "layer_9")] = files.pop(path)
    os.unlink(step / "first")  # it would lead nowhere


def change_rename_out(step, files):
    (step.parent / "plain").mkdir()
    os.rename(step / W0, step.parent / "plain/w")
    assert (step.parent / "plain/w").read_bytes() == files.pop(W0)
    shutil.rmtree(step.parent / "plain")


def change_rename_into(step, files):
    (step.parent / "plain").mkdir()
    trees.write(step.parent / "plain/w", b"from outside")
    os.rename(step.parent / "plain/w", step / "params/w")
    files["params/w"] = b"from outside"
    os.rmdir(step.parent / "plain")


def change_rename_over(step, files):
    trees.write(step.parent / "new", b"whole new")
    os.rename(step.parent / "new", step / W0)
    files[W0] = b"whole new"


def change_rename_within_over(step, files):
    os.rename(step / W1, step / W0)
    files[W0] = files.pop(W1)


def change_unlink_and_create(step, files):
    os.unlink(step / W0)
    trees.write(step / W0, b"anew")
    files[W0] = b"anew"


def change_rename_dir_and_make_anew(step, files):
    os.rename(step / "params/layer_0", step / "old")
    (step / "params/layer_0").mkdir()
    trees.write(step / "params/layer_0/w0.bin", b"anew")
    files["old/w0.bin"] = files[W0]
    files[W0] = b"anew"


def change_link(step, files):
    append(step / "config.json", b"1")
    os.link(step / "config.json", step / "config.2.json")
    append(step / "config.2.json", b"2")
    files["config.json"] += b"12"
    files["config.2.json"] = files["config.json"]


def killed_in_the_middle(agent, path):
    """A process writes into the file and is killed before it has closed it."""
    a = agent()
    a.run("fd = os.open(path, os.O_WRONLY | os.O_APPEND); os.write(fd, b'half')", path=str(path))
    a.kill()


CHANGES = {name.removeprefix("change_").replace("_", " "): f for name, f in dict(globals()).items() if name.startswith("change_")}
# Those of names alone are a version of the step at once (test_edit_names.py), unless it is reopened already.
NAMES = ["rename", "rename dir", "rename out", "rename into", "rename over", "rename within over", "rename dir and make anew", "unlink and create"]
each_change = pytest.mark.parametrize("change", [name for name in CHANGES if name not in NAMES])


def listed(mount):
    return [name for name in mount.listing() if name != "900"]


def latest(mount):
    """By another process: one that reads the link and changes the step then changes it through the link."""
    done = subprocess.run(["readlink", mount / "latest"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def versions(ckptfs, store, name="1000"):
    return [(v["event"], v["state"]) for v in ckptfs.json("info", store, name)["versions"]]


def assert_is(mount, name, files, rest=()):
    """The step is listed with these files, now and after a remount."""
    for _ in range(2):
        assert mount.listing() == sorted([*rest, name]) and trees.files(mount / name) == files
        mount.remount()


# --- While it is reopened -------------------------------------------------------------------------------------------------


@both_modes
@each_change
def test_changed_step_is_in_no_listing_and_has_the_change_by_its_name(mount, base, change):
    step, files = base
    old = dict(files)
    assert latest(mount) == "1000"
    held = {p: open(step / p, "rb") for p in old}
    numbers = {str(p.relative_to(step)): os.lstat(p).st_ino for p in [step, *step.rglob("*")]}
    CHANGES[change](step, files)
    assert mount.listing() == ["900"] and latest(mount) == "900"
    assert trees.files(step) == files
    for path, f in held.items():
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert f.read() == old[path], f"who had {path} open reads other bytes"
        f.close()
    now = {str(p.relative_to(step)): os.lstat(p).st_ino for p in [step, *step.rglob("*")]}
    assert len(set(now.values())) == len(now) - (change == "link"), "two have one number"
    for path in now:
        if path != "first" and (step / path).is_dir() and path in numbers and change != "rename dir and make anew" or path in files and old.get(path) == files[path]:
            assert now[path] == numbers[path], f"{path} has another number"
    assert os.lstat(mount / "900" / W0).st_size == 200_000
    assert mount.errors() == []


@pytest.mark.parametrize("options", ["amend=deny"], indirect=True)
@pytest.mark.parametrize("change", CHANGES)
def test_denied_changes_change_nothing(mount, one, change):
    step, files = one
    old = dict(files)
    try:
        CHANGES[change](step, files)
    except OSError as e:
        assert e.errno in (errno.EROFS, errno.EXDEV), e
    else:
        raise AssertionError("it was changed")
    if change != "unlink and create":
        assert mount.listing()[0] == "1000" and trees.files(step) == old


@both_modes
def test_mapping_of_a_reader_keeps_its_bytes(mount, one):
    import mmap
    step, files = one
    with open(step / W0, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        first = m[:4096]
        patch(step / W0, b"x" * 150_000)
        assert m[:] == files[W0] and first == files[W0][:4096]


@both_modes
def test_process_that_is_inside_works_on(mount, base, agent, commit):
    step, files = base
    a = agent()
    a.run("os.chdir(step)", step=str(step / "params/layer_0"))
    change_write(step, files)
    assert a.run("open('w0.bin', 'rb').read()") == files[W0]
    assert a.run("os.getcwd()") == str(step / "params/layer_0") and a.run("os.listdir('.')") == ["w0.bin"]
    a.run("f = open('more', 'w'); f.write('x'); f.close()")
    files["params/layer_0/more"] = b"x"
    commit(step)
    assert a.run("open('w0.bin', 'rb').read()") == files[W0] and sorted(a.run("os.listdir('.')")) == ["more", "w0.bin"]
    assert a.run("os.getcwd()") == str(step / "params/layer_0")
    assert trees.files(step) == files and "1000" in mount.listing()
    a.run("os.chdir('/')")


@quiet
@pytest.mark.parametrize("end", ["committed", "given up"])
def test_process_that_is_inside_sees_its_end(mount, base, agent, end):
    step, files = base
    old = dict(files)
    a = agent()
    a.run("os.chdir(step)", step=str(step / "params/layer_0"))
    if end == "given up":
        killed_in_the_middle(agent, step / "config.json")
    change_write(step, files)
    assert a.run("open('w0.bin', 'rb').read()") == files[W0]
    wait_until(lambda: listed(mount) == ["1000"], what="the end of the reopened step")
    assert a.run("open('w0.bin', 'rb').read()") == (old if end == "given up" else files)[W0]
    assert sorted(a.run("os.listdir('..')")) == sorted(os.listdir(step / "params"))
    a.run("os.chdir('/')")


def test_reopening_costs_no_bytes_and_no_time(mount, store, commit):
    step = mount / "1000"
    step.mkdir()
    for d in range(20):
        (step / f"d{d}").mkdir()
        for n in range(100):
            trees.write(step / f"d{d}/f{n}", b"%d" % (d * 100 + n) * 3000)
    commit(step)
    mount.remount()
    before = int(subprocess.run(["du", "-s", "-B1", store], check=True, capture_output=True, text=True).stdout.split()[0])
    began = time.monotonic()
    patch(step / "d7/f7")
    assert time.monotonic() - began < 3 * SLOW
    after = int(subprocess.run(["du", "-s", "-B1", store], check=True, capture_output=True, text=True).stdout.split()[0])
    assert after - before < 1 << 20
    assert (step / "d7/f7").read_bytes() == b"NEW" + (b"707" * 3000)[3:]
    commit(step)
    assert mount.listing() == ["1000"] and len(trees.files(step)) == 2000


def test_two_clients_that_change_at_once_are_both_heard(mount, base, commit):
    step, files = base
    start, failures = threading.Barrier(8), []

    def change(n):
        start.wait()
        try:
            path = step / (W0 if n % 2 else W1)
            patch(path, b"%d" % n * 1000, n * 1000)
            if n == 3:
                os.rename(step / "config.json", step / "c.json")
        except OSError as e:
            failures.append(e)

    threads = [threading.Thread(target=change, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for n in range(8):
        path = W0 if n % 2 else W1
        files[path] = files[path][:n * 1000] + b"%d" % n * 1000 + files[path][n * 1000 + 1000:]
    files["c.json"] = files.pop("config.json")
    assert failures == [] and trees.files(step) == files
    commit(step)
    assert_is(mount, "1000", files, ["900"])


def test_remover_and_writer_at_once_are_both_heard(mount, commit):
    """What was removed one by one before somebody reopened the step is missing in it."""
    for turn in range(5):
        step = mount / f"{turn + 1}"
        step.mkdir()
        for n in range(100):
            trees.write(step / f"f{n:02}", b"x" * 100)
        commit(step)
        start = threading.Barrier(2)

        def remove(step=step, start=start):
            start.wait()
            for n in range(1, 100):
                os.unlink(step / f"f{n:02}")

        remover = threading.Thread(target=remove)
        remover.start()
        start.wait()
        time.sleep(0.001 * turn)
        patch(step / "f00")
        remover.join()
        assert os.listdir(step) == ["f00"]


@quiet
def test_open_writer_keeps_it_reopened(mount, one):
    step, files = one
    with open(step / W0, "r+b") as f:
        f.write(b"NEW")
        f.flush()
        time.sleep(3.5)
        assert listed(mount) == []
    wait_until(lambda: listed(mount) == ["1000"], what="the end of the reopened step")
    files[W0] = b"NEW" + files[W0][3:]
    assert trees.files(step) == files


# --- Completed ------------------------------------------------------------------------------------------------------------


@both_modes
@each_change
def test_marker_makes_the_next_version(mount, base, ckptfs, store, commit, change):
    step, files = base
    old, first = dict(files), os.stat(step)
    held = {p: open(step / p, "rb") for p in old}
    CHANGES[change](step, files)
    commit(step, b'{"metrics":{"loss":3}}')
    for path, f in held.items():
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert f.read() == old[path]
        f.close()
    for _ in range(2):
        assert mount.listing() == ["1000", "900"] and latest(mount) == "1000"
        assert trees.files(step) == files
        assert (os.stat(step).st_ino, os.stat(step).st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
        assert trees.files(mount / ".ckptfs/trash/1000") == old
        info = ckptfs.json("info", store, "1000")
        assert info["metrics"] == {"loss": 3} and info["version"] == len(info["versions"])
        assert [r["name"] for r in ckptfs.json("ls", store, "--trash")] == ["1000"]
        mount.remount()
    assert ckptfs("cat", store, "trash/1000", "config.json").stdout.encode() == old["config.json"]
    assert ckptfs.json("verify", store)["bad"] == [] and ckptfs.json("sessions", store) == []
    assert mount.errors() == []


@both_modes
def test_whole_step_saved_again_over_itself(mount, base, ckptfs, store, commit):
    """As a framework does that was restarted: the same names, each opened and written anew."""
    step, files = base
    old = dict(files)
    for name in files:
        files[name] = trees.content(("again", name), len(files[name]))
        trees.write(step / name, files[name])
    assert listed(mount) == []
    commit(step)
    assert_is(mount, "1000", files, ["900"])
    assert trees.files(mount / ".ckptfs/trash/1000") == old
    assert versions(ckptfs, store) == [("marker", "old"), ("marker", "current")]


def test_second_and_third_reopening(mount, base, ckptfs, store, commit):
    step, files = base
    made = [dict(files)]
    for n in range(3):
        append(step / "config.json", b"%d" % n)
        files["config.json"] += b"%d" % n
        patch(step / W1, b"%d" % n, n)
        files[W1] = files[W1][:n] + b"%d" % n + files[W1][n + 1:]
        commit(step)
        assert trees.files(step) == files
        made.append(dict(files))
        if n == 1:
            mount.remount()
    rows = sorted(ckptfs.json("ls", store, "--trash"), key=lambda row: row["deleted_at"], reverse=True)
    assert len(rows) == 3
    for row, want in zip(rows, made[2::-1]):
        assert trees.files(mount / ".ckptfs/trash" / row["name"]) == want
    assert_is(mount, "1000", files, ["900"])
    assert ckptfs.json("verify", store)["bad"] == []


def test_version_of_before_can_be_had_back_once_the_new_one_is_removed(mount, one, ckptfs, store, commit):
    step, files = one
    old = dict(files)
    change_write(step, files)
    commit(step)
    refused = ckptfs("undelete", store, "1000", check=False)
    assert refused.returncode == 1 and "hint: " in refused.stderr
    ckptfs("rm", store, "1000")
    older = next(r["name"] for r in ckptfs.json("ls", store, "--trash") if r["name"] != "1000")
    ckptfs("undelete", store, older)
    assert_is(mount, "1000", old)
    change_write(step, old)
    commit(step)
    assert_is(mount, "1000", old)


@pytest.mark.parametrize("first", ["newer", "older"])
def test_versions_that_expire_one_by_one_never_come_back(mount, one, ckptfs, store, commit, first):
    step, files = one
    old = dict(files)
    change_write(step, files)
    commit(step)
    shutil.rmtree(step)
    for n, left in enumerate([old if first == "newer" else files, None]):
        names = [r["name"] for r in ckptfs.json("ls", store, "--trash")]
        ckptfs("rm", "--now", "--yes", store, "trash/" + next(name for name in names if (name == "1000") == bool(n or first == "newer")))
        for _ in range(2):
            assert mount.listing() == []
            if left:
                assert trees.files(mount / ".ckptfs/trash/1000") == left
            mount.remount()
    assert ckptfs.json("ls", store, "--all") == []
    step.mkdir()
    trees.write(step / "a", b"a")
    commit(step)
    assert_is(mount, "1000", {"a": b"a"})


def test_superseded_version_deleted_for_good_leaves_the_new_one_whole(mount, one, ckptfs, store, commit):
    step, files = one
    change_write(step, files)
    commit(step)
    ckptfs("rm", "--now", "--yes", store, "trash/1000")
    wait_until(lambda: os.listdir(store / "trash") == [], what="the end of its files")
    assert_is(mount, "1000", files)
    assert ckptfs.json("verify", store)["bad"] == []


def test_commit_that_fails_leaves_it_reopened(mount, one, commit, agent):
    step, files = one
    change_write(step, files)
    a = agent()
    a.run("fd = os.open(path, os.O_RDWR); os.write(fd, b'half')", path=str(step / W1))
    with pytest.raises(OSError) as e:
        commit(step)
    assert e.value.errno == errno.EBUSY
    assert listed(mount) == [] and (step / W1).read_bytes()[:4] == b"half"
    a.run("os.pwrite(fd, b'more', 4); os.close(fd)")
    files[W1] = b"halfmore" + files[W1][8:]
    commit(step)
    assert_is(mount, "1000", files)


@needs_root
def test_full_disk_leaves_it_reopened(world, commit):
    disk = LoopDisk(world)
    m = Mount.new(world, disk.path / "store")
    (m / "1000").mkdir()
    files = trees.fill(m / "1000")
    commit(m / "1000")
    patch(m / "1000/config.json", b"[")
    files["config.json"] = b"[" + files["config.json"][1:]
    disk.fill_up()
    with pytest.raises(OSError) as e:
        commit(m / "1000")
    assert e.value.errno == errno.ENOSPC
    assert m.listing() == [] and trees.files(m / "1000") == files
    with pytest.raises(OSError):
        patch(m / "1000/params/layer_0/w0.bin", b"x")
    disk.make_room()
    assert trees.files(m / "1000") == files
    commit(m / "1000")
    assert_is(m, "1000", files)


@needs_root
def test_reopening_on_a_full_disk_changes_nothing(world, commit):
    disk = LoopDisk(world)
    m = Mount.new(world, disk.path / "store")
    (m / "1000").mkdir()
    files = trees.fill(m / "1000")
    commit(m / "1000")
    disk.fill_up()
    with pytest.raises(OSError) as e:
        patch(m / "1000/config.json")
    assert e.value.errno == errno.ENOSPC
    assert m.listing() == ["1000"] and trees.files(m / "1000") == files
    assert any("1000" in line for line in m.errors())
    disk.make_room()
    patch(m / "1000/config.json", b"[")
    files["config.json"] = b"[" + files["config.json"][1:]
    commit(m / "1000")
    assert_is(m, "1000", files)


# --- Quiet ----------------------------------------------------------------------------------------------------------------


@found
@quiet
@each_change
def test_edit_that_is_quiet_is_committed(mount, base, ckptfs, store, change):
    """None of these files holds arrays: a second is enough, whatever was done, and the step keeps its place."""
    step, files = base
    old = dict(files)
    CHANGES[change](step, files)
    assert listed(mount) == []
    wait_until(lambda: listed(mount) == ["1000"], timeout=4 * SLOW, what="the next version")
    assert_is(mount, "1000", files, ["900"])
    assert trees.files(mount / ".ckptfs/trash/1000") == old
    assert ckptfs.json("info", store, "1000")["event"] == "quiet" and mount.errors() == []
    assert ckptfs.json("sessions", store) == []


def test_edit_does_not_make_a_step_the_latest(mount, commit, ckptfs, store):
    for name in ("900", "1000"):
        (mount / name).mkdir()
        trees.fill(mount / name)
        commit(mount / name)
    mount.remount(options=["commit_quiet=1s"])
    append(mount / "900/config.json")
    wait_until(lambda: mount.listing() == ["1000", "900"], what="the next version")
    for _ in range(2):
        assert latest(mount) == "1000" and ckptfs("latest", store).stdout.strip() == "1000"
        mount.remount()


@pytest.fixture
def arrays(mount, commit, origin):
    """A committed step of two arrays and a file beside them; the mount takes what is quiet for a second."""
    step = mount / "1000"
    step.mkdir()
    files = {"a.safetensors": tensors(b"a"), "b.safetensors": tensors(b"b"), "config.json": b"{}"}
    for name, data in files.items():
        trees.write(step / name, data)
    commit(step)
    mount.remount(options=["commit_quiet=500ms"])
    return step, files


def tensors(data, size=5000):
    header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)
    return len(header).to_bytes(8, "little") + header + data * size


@found
@both_modes
def test_arrays_that_were_written_anew_are_committed_after_the_longer_time(mount, arrays):
    step, files = arrays
    began = time.monotonic()
    files["a.safetensors"] = tensors(b"c")
    trees.write(step / "a.safetensors", files["a.safetensors"])
    wait_until(lambda: listed(mount) == ["1000"], timeout=10 * SLOW, what="the next version")
    assert time.monotonic() - began >= 3
    assert_is(mount, "1000", files)
    assert mount.errors() == []


@found
def test_arrays_that_are_cut_off_are_given_up(mount, arrays, ckptfs, store):
    step, files = arrays
    os.truncate(step / "a.safetensors", 3000)
    wait_until(mount.errors, timeout=10 * SLOW, what="a line in errors")
    assert "a.safetensors is cut off" in mount.errors()[0]
    assert_is(mount, "1000", files)
    assert [(s["name"], s["state"]) for s in ckptfs.json("sessions", store)] == [("1000", "left")]


@found
@pytest.mark.parametrize("anew", [1, 2])
def test_writer_that_is_killed_in_a_file_has_written_nothing(mount, arrays, agent, anew):
    step, files = arrays
    for name in list(files)[:anew]:
        trees.write(step / name, tensors(b"c"))
    killed_in_the_middle(agent, step / "config.json")
    wait_until(mount.errors, timeout=10 * SLOW, what="a line in errors")
    assert "was killed while it wrote a file of it" in mount.errors()[0]
    assert_is(mount, "1000", files)


@found
@pytest.mark.parametrize("anew", [1, 2])
def test_writer_that_is_killed_between_files_has_written_each_array_or_none(mount, arrays, agent, anew):
    """It has nothing open: by 1 array anew of 2 the step is half of one save and half of another."""
    step, files = arrays
    new = {name: tensors(b"%d" % n) for n, name in enumerate(list(files)[:anew])}
    a = agent()
    for name, data in new.items():
        a.run("f = open(path, 'wb'); f.write(data); f.close()", path=str(step / name), data=data)
    a.kill()
    wait_until(lambda: listed(mount) == ["1000"], timeout=10 * SLOW, what="the end of the reopened step")
    if anew == 1:
        wait_until(mount.errors, what="a line in errors")
        assert "not yet: b.safetensors" in mount.errors()[0]
    assert_is(mount, "1000", files if anew == 1 else {**files, **new})


@found
@quiet
@pytest.mark.parametrize("change", ["write", "rename dir", "unlink and create", "link"])
def test_changes_of_a_killed_writer_are_given_up_and_kept(mount, base, ckptfs, store, agent, change):
    step, files = base
    old = dict(files)
    numbers = trees.describe(step, inodes=True)
    killed_in_the_middle(agent, step / "config.json")
    files["config.json"] += b"half"
    CHANGES[change](step, files)
    wait_until(lambda: listed(mount) == ["1000"], what="the end of the reopened step")
    assert trees.files(step) == old and latest(mount) == "1000"
    assert trees.describe(step, inodes=True) == numbers
    assert trees.files(mount / ".ckptfs/staged/1000") == files
    wait_until(mount.errors, what="a line in errors, which comes after the end")
    assert len(mount.errors()) == 1 and "1000" in mount.errors()[0] and "the previous version is restored" in mount.errors()[0]
    assert [(s["name"], s["state"]) for s in ckptfs.json("sessions", store)] == [("1000", "left")]
    mount.remount()
    assert mount.listing() == ["1000", "900"] and trees.files(step) == old
    assert trees.files(mount / ".ckptfs/staged/1000") == files
    assert len(ckptfs.json("ls", store, "--trash")) == 0


@quiet
def test_given_up_step_can_be_changed_again_which_supersedes_the_changes_of_before(mount, one, ckptfs, store, commit, agent):
    step, files = one
    killed_in_the_middle(agent, step / W0)
    wait_until(lambda: listed(mount) == ["1000"], what="the end of the reopened step")
    change_append(step, files)
    assert listed(mount) == []
    commit(step)
    assert_is(mount, "1000", files)
    assert [s["state"] for s in ckptfs.json("sessions", store)] == ["left"], "it goes after staging_ttl"


@quiet
@pytest.mark.parametrize("verb", ["resume", "commit", "abort"])
@pytest.mark.parametrize("remounted", [False, True], ids=["", "after a remount"])
def test_given_up_changes_can_be_taken_up_completed_or_dropped(mount, one, ckptfs, store, commit, agent, verb, remounted):
    step, files = one
    old = dict(files)
    killed_in_the_middle(agent, step / "config.json")
    files["config.json"] += b"half"
    change_write(step, files)
    wait_until(lambda: listed(mount) == ["1000"], what="the end of the reopened step")
    if remounted:
        mount.remount()
    ckptfs(verb, *(["--yes"] if verb == "abort" else []), store, "1000")
    if verb == "resume":
        assert listed(mount) == [] and trees.files(step) == files
        change_append(step, files)
        commit(step)
    assert_is(mount, "1000", old if verb == "abort" else files)
    assert ckptfs.json("sessions", store) == []
    assert [r["name"] for r in ckptfs.json("ls", store, "--trash")] == ([] if verb == "abort" else ["1000"])
    assert ckptfs.json("verify", store)["bad"] == []


@pytest.mark.parametrize("end", ["killed", "unmounted"])
def test_restart_gives_up_the_changes_that_an_orderly_end_commits(mount, base, ckptfs, store, end):
    step, files = base
    old = dict(files)
    change_write(step, files)
    change_unlink_and_create(step, files)
    if end == "unmounted":
        mount.remount()
        assert_is(mount, "1000", files, ["900"])
        assert ckptfs.json("sessions", store) == [] and mount.errors() == []
        return
    mount.kill9()
    mount.start()
    assert mount.listing() == ["1000", "900"] and trees.files(step) == old
    assert trees.files(mount / ".ckptfs/staged/1000") == files
    assert ckptfs.json("verify", store)["bad"] == []
    assert any("1000" in line for line in mount.errors()), "nobody is told that the changes were not completed"


# --- Removed --------------------------------------------------------------------------------------------------------------


@found
@both_modes
@each_change
def test_removed_step_is_deleted_and_the_version_of_before_is_in_the_trash(mount, base, ckptfs, store, change):
    step, files = base
    old = dict(files)
    CHANGES[change](step, files)
    shutil.rmtree(step)
    for _ in range(2):
        assert mount.listing() == ["900"] and not step.exists()
        assert trees.files(mount / ".ckptfs/trash/1000") == old
        assert ckptfs.json("sessions", store) == []
        mount.remount()
    ckptfs("undelete", store, "1000")
    assert_is(mount, "1000", old, ["900"])


def test_step_that_is_not_empty_is_not_removed(mount, one):
    step, files = one
    change_write(step, files)
    with pytest.raises(OSError) as e:
        os.rmdir(step)
    assert e.value.errno == errno.ENOTEMPTY
    assert trees.files(step) == files


def test_aborted_session_is_the_version_of_before(mount, base, ckptfs, store):
    step, files = base
    old = dict(files)
    with open(step / W0, "rb") as reader:
        change_write(step, files)
        ckptfs("abort", "--yes", store, "1000")
        assert mount.listing() == ["1000", "900"] and trees.files(step) == old
        assert reader.read() == old[W0]
    assert ckptfs.json("sessions", store) == []
    change_append(step, old)
    assert trees.files(step) == old and listed(mount) == []


def test_session_committed_by_verb(mount, base, ckptfs, store):
    step, files = base
    change_write(step, files)
    assert [(s["name"], s["state"]) for s in ckptfs.json("sessions", store)] == [("1000", "live")]
    ckptfs("commit", store, "1000")
    assert_is(mount, "1000", files, ["900"])
    assert ckptfs.json("info", store, "1000")["event"] == "verb"


# --- Beside it ------------------------------------------------------------------------------------------------------------


def test_reopened_step_is_not_renamed_and_its_name_not_taken(mount, one, commit):
    step, files = one
    change_write(step, files)
    with pytest.raises(OSError) as e:
        os.rename(step, mount / "2000")
    assert e.value.errno == errno.EBUSY
    with pytest.raises(FileExistsError):
        step.mkdir()
    (mount / "3000").mkdir()
    with pytest.raises(OSError):
        os.rename(mount / "3000", step)
    commit(step)
    os.rename(step, mount / "2000")
    assert_is(mount, "2000", files)


def test_other_mounts_and_verbs_see_the_version_of_before(world, mount, store, one, ckptfs, commit):
    step, files = one
    old = dict(files)
    other = Mount.new(world, store, path=world.scratch / "other", options=["ro"])
    change_write(step, files)
    assert other.listing() == ["1000"] and trees.files(other / "1000") == old
    assert [r["name"] for r in ckptfs.json("ls", store)] == ["1000"]
    assert ckptfs("cat", store, "1000", "config.json").stdout.encode() == old["config.json"]
    assert ckptfs.json("verify", store)["bad"] == []
    commit(step)
    assert other.listing() == ["1000"]
    other.remount()
    assert other.listing() == ["1000"] and trees.files(other / "1000") == files


def test_verbs_that_would_change_a_reopened_step_are_refused_or_done_whole(mount, one, ckptfs, store, commit):
    step, files = one
    old = dict(files)
    change_write(step, files)
    for verb in (("rm", "1000"), ("mv", "1000", "2000"), ("rm", "--now", "--yes", "1000")):
        done = ckptfs(verb[0], *[w for w in verb[1:] if w.startswith("-")], store, *[w for w in verb[1:] if not w.startswith("-")], check=False)
        assert done.returncode == 1 and "hint: " in done.stderr
        assert trees.files(step) == files and listed(mount) == []
    commit(step)
    assert_is(mount, "1000", files)
    assert trees.files(mount / ".ckptfs/trash/1000") == old


def test_link_and_copy_of_a_reopened_step(mount, base, commit):
    step, files = base
    change_write(step, files)
    shutil.copytree(step, mount / "3000", symlinks=True)
    commit(mount / "3000")
    assert trees.files(mount / "3000") == files
    commit(step)
    subprocess.run(["cp", "-al", step, mount / "2000"], check=True)
    change_append(step, files)
    commit(mount / "2000")
    commit(step)
    assert trees.files(step) == files and mount.listing() == ["1000", "2000", "3000", "900"]


def test_modes_and_owners_and_attributes_are_kept(mount, commit):
    step = mount / "1000"
    step.mkdir()
    trees.fill(step)
    os.chmod(step / "params", 0o750)
    os.chmod(step / W0, 0o444)
    os.setxattr(step / "params", "user.note", b"dir")
    os.setxattr(step / W0, "user.note", b"file")
    os.utime(step / "params/layer_1", ns=(5, 5))
    os.utime(step / "first", ns=(6, 6), follow_symlinks=False)
    os.chmod(step, 0o700)
    commit(step)
    before = trees.describe(step, inodes=True)
    append(step / "config.json")
    for _ in range(2):
        now = trees.describe(step, inodes=True)
        assert {p for p in now if now[p] != before[p]} <= {"config.json", ".", "first"}
        assert {**now["first"], "ino": 0} == {**before["first"], "ino": 0} and {**now["."], "mtime_ns": 0} == {**before["."], "mtime_ns": 0}
        with contextlib.suppress(OSError):
            commit(step)


def test_hard_links_of_the_step_are_hard_links_in_it(mount, commit):
    step = mount / "1000"
    step.mkdir()
    trees.write(step / "a", b"one file")
    os.link(step / "a", step / "b")
    trees.write(step / "c", b"other")
    commit(step)
    append(step / "c")
    assert os.lstat(step / "a").st_nlink == 2 and os.lstat(step / "a").st_ino == os.lstat(step / "b").st_ino
    append(step / "a")
    commit(step)
    assert_is(mount, "1000", {"a": b"one fileNEW", "b": b"one fileNEW", "c": b"otherNEW"})
    assert trees.files(mount / ".ckptfs/trash/1000") == {"a": b"one file", "b": b"one file", "c": b"other"}
