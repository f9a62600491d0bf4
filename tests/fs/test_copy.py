"""Steps of one store are copied into another: at rest, beside mounts, cut off and started again."""

import json
import os
import shutil
import signal
import subprocess

import pytest

from support import trees
from support.fixtures import needs_root
from support.mounting import LoopDisk, Mount, wait_until

pytestmark = pytest.mark.timeout(60)

DONE = {"failed": 0}


@pytest.fixture(params=["mounted", "at rest"])
def where(request):
    return request.param


@pytest.fixture
def dst(world, scratch, ckptfs, where):
    """The path of an empty store, mounted or not."""
    path = scratch / "dst"
    ckptfs("init", path)
    if where == "mounted":
        Mount.new(world, path, scratch / "mnt-dst")
    return path


@pytest.fixture
def src(scratch, ckptfs):
    """A store with steps 1000, 500, step_7 and 2000, in this order, of which the first has all that a step may have."""
    path = scratch / "src"
    ckptfs("init", path)
    folder = scratch / "folder"
    folder.mkdir()
    trees.fill(folder)
    (folder / "nothing").mkdir(mode=0o711)
    os.link(folder / "config.json", folder / "params/again.json")
    os.setxattr(folder / "config.json", "user.note", b"kept")
    os.setxattr(folder / "params", "user.note", b"folder")
    os.chmod(folder / "config.json", 0o640)
    if os.geteuid() == 0:
        os.chown(folder / "config.json", 1234, 4321)
        os.chown(folder / "first", 1234, 4321, follow_symlinks=False)
    os.utime(folder / "first", ns=(1, 111_222_333_444_555_666), follow_symlinks=False)
    os.utime(folder / "config.json", ns=(1, 1_234_567_890_123_456_789))
    os.utime(folder / "params", ns=(1, 987_654_321_000_000_001))
    for name in ("1000", "500", "step_7", "2000"):
        ckptfs("save", path, folder, name)
        (folder / f"since-{name}").write_bytes(name.encode())
    return path


def names(ckptfs, store):
    """In the order of their commits."""
    return [row["name"] for row in ckptfs.json("ls", "--sort", "committed_at", "--reverse", store)][::-1]


def got(ckptfs, store, name, scratch):
    to = scratch / f"got-{store.name}-{name.replace('/', '-')}"
    ckptfs("get", store, name, to)
    return to


def assert_same(ckptfs, scratch, a, b, *steps):
    for name in steps:
        x, y = got(ckptfs, a, name, scratch), got(ckptfs, b, name, scratch)
        assert trees.files(x) == trees.files(y) and trees.describe(x) == trees.describe(y), name
    ckptfs("verify", "--read-data", b)


def test_all_steps_are_copied_in_the_order_of_their_commits(src, dst, ckptfs, scratch):
    ckptfs("rm", src, "step_7")
    first = ckptfs.json("copy", src, dst)
    assert first == DONE | {"steps": 3, "copied": 3, "bytes": first["bytes"], "sent_bytes": first["bytes"]}
    assert first["bytes"] == sum(row["bytes"] for row in ckptfs.json("ls", src)), "hard links count once"
    assert names(ckptfs, dst) == ["1000", "500", "2000"]
    assert ckptfs("latest", "--by", "commit", dst).stdout == ckptfs("latest", "--by", "commit", src).stdout == "2000\n"
    assert_same(ckptfs, scratch, src, dst, "1000", "500", "2000")
    config, again = scratch / "got-dst-1000/config.json", scratch / "got-dst-1000/params/again.json"
    assert os.stat(config).st_ino == os.stat(again).st_ino and os.getxattr(config, "user.note") == b"kept"
    assert ckptfs.json("sessions", dst) == []


def test_what_is_there_is_not_copied_again(src, dst, ckptfs):
    ckptfs("copy", "--steps", "500", src, dst)
    before = ckptfs.json("info", dst, "500")
    done = ckptfs.json("copy", src, dst)
    assert (done["steps"], done["copied"]) == (4, 3)
    assert done["sent_bytes"] == done["bytes"] - before["bytes"]
    assert ckptfs.json("info", dst, "500") == before
    for _ in range(2):
        again = ckptfs.json("copy", src, dst)
        assert (again["steps"], again["copied"], again["sent_bytes"], again["bytes"]) == (4, 0, 0, done["bytes"])
        ckptfs("seal", dst)
    assert ckptfs("copy", "-v", src, dst).stderr.count("is there already") == 4


def test_source_may_be_mounted_and_named_by_a_place_in_it(world, src, ckptfs, scratch):
    mount = Mount.new(world, src, scratch / "mnt-src")
    assert ckptfs("copy", mount.path, scratch / "all").returncode == 0
    assert names(ckptfs, scratch / "all") == ["1000", "500", "step_7", "2000"]
    ckptfs("copy", mount / "500", scratch / "one")
    assert names(ckptfs, scratch / "one") == ["500"]
    done = ckptfs("copy", "--steps", "500", mount / "500", scratch / "one", check=False)
    assert done.returncode == 2 and "beside --steps" in done.stderr


CHOSEN = [(["500"], ["500"]), (["500,2000"], ["500", "2000"]), (["2000", "500"], ["500", "2000"]), (["latest"], ["2000"]), (["latest~1,500"], ["500", "step_7"]),
          (["step_*"], ["step_7"]), (["*"], ["1000", "500", "step_7", "2000"]), (["400..1000"], ["1000", "500"]), (["7..7"], ["step_7"]), (["500,*00"], ["1000", "500", "2000"])]
REFUSED = ["absent", "500,absent", "3000..4000", "x*", "1000/config.json", "trash/1000", "500,,2000", ""]


def test_steps_are_chosen_by_names_globs_and_ranges(src, ckptfs, scratch):
    for lists, copied in CHOSEN:
        said = ckptfs("copy", "--dry-run", *[w for word in lists for w in ("--steps", word)], src, scratch / "new").stdout
        assert [line.split(":")[0] for line in said.splitlines()] == copied, lists
    for word in REFUSED:
        done = ckptfs("copy", "--steps", word, src, scratch / "new", check=False)
        assert done.returncode and done.stderr.startswith("ckptfs: ") and len(done.stderr.splitlines()) <= 2, word
        assert not (scratch / "new").exists(), "nothing is made before all operands are right"
    ckptfs("copy", "--steps", "5*,latest", src, scratch / "new")
    assert names(ckptfs, scratch / "new") == ["500", "2000"]


def test_folders_are_made_and_chosen_as_a_whole(world, src, dst, where, ckptfs, scratch):
    mount = Mount.new(world, src, scratch / "mnt-src")
    (mount / "runs/a").mkdir(parents=True)
    (mount / "runs/b").mkdir()
    ckptfs("mv", src, "500", "runs/a/500")
    ckptfs("mv", src, "2000", "runs/b/2000")
    mount.umount()
    ckptfs("copy", "--steps", "runs/a", src, dst)
    assert names(ckptfs, dst) == ["runs/a/500"]
    ckptfs("copy", src, dst)
    assert sorted(names(ckptfs, dst)) == ["1000", "runs/a/500", "runs/b/2000", "step_7"]
    assert ckptfs.json("copy", src, dst)["copied"] == 0
    assert_same(ckptfs, scratch, src, dst, "runs/a/500", "runs/b/2000")
    if where == "mounted":
        assert trees.files(scratch / "mnt-dst/runs/b/2000") == trees.files(scratch / "got-src-runs-b-2000")


def test_a_step_in_the_way_of_a_folder_is_said(world, src, dst, ckptfs, scratch):
    mount = Mount.new(world, src, scratch / "mnt-src")
    (mount / "x").mkdir()
    ckptfs("mv", src, "500", "x/500")
    mount.umount()
    ckptfs("save", dst, scratch / "folder", "x")
    done = ckptfs("copy", src, dst, check=False)
    assert done.returncode == 1 and "x/500: File exists" in done.stderr
    assert set(names(ckptfs, dst)) == {"x", "1000", "step_7", "2000"}, "the rest went on"
    assert ckptfs.json("sessions", dst) == []


def test_what_is_said_of_a_step_goes_with_it(world, src, dst, ckptfs, scratch):
    mount = Mount.new(world, src, scratch / "mnt-src")
    staged = mount / "3000"
    staged.mkdir()
    trees.write(staged / "f", b"x")
    trees.write(staged / ".finalize", b'{"temporary":true,"extras":{"tag":"best"},"metrics":{"loss":2.5}}')
    (mount / "4000.orbax-checkpoint-tmp-7").mkdir()
    trees.fill(mount / "4000.orbax-checkpoint-tmp-7")
    os.rename(mount / "4000.orbax-checkpoint-tmp-7", mount / "4000")
    trees.write(mount / "4000/metrics.json", b'{"loss": 1.25}')
    mount.umount()
    ckptfs("pin", src, "1000")
    ckptfs("pin", src, "3000")
    ckptfs("seal", src)
    ckptfs("copy", src, dst)
    for name in ("1000", "3000", "4000"):
        a, b = ckptfs.json("info", src, name), ckptfs.json("info", dst, name)
        for key in ("number", "files", "bytes", "temporary", "pinned", "extras", "metrics", "profile"):
            assert a[key] == b[key], (name, key)
        assert a["versions"][0]["event"] == b["versions"][0]["event"]
        assert b["committed_at"] > a["committed_at"]
    assert ckptfs.json("info", dst, "4000")["profile"] != "generic", "it would prove nothing"
    ckptfs("promote", src, "3000")
    ckptfs("unpin", dst, "1000")
    ckptfs("copy", src, dst)
    assert ckptfs.json("info", dst, "1000")["pinned"], "a pin goes along with a step that is there"
    ckptfs("copy", src, scratch / "other")
    assert not ckptfs.json("info", scratch / "other", "3000")["temporary"], "it was made permanent"


def test_taken_name_is_said_and_the_rest_goes_on(src, dst, ckptfs, scratch):
    other = scratch / "other"
    other.mkdir()
    (other / "model.bin").write_bytes(b"other weights")
    ckptfs("save", dst, other, "500")
    done = ckptfs("copy", src, dst, check=False)
    assert done.returncode == 1 and done.stderr.splitlines() == [
        "ckptfs: 500: DST has a step of this name with other files", "hint: --force copies over it, and it goes to the trash"]
    assert sorted(names(ckptfs, dst)) == ["1000", "2000", "500", "step_7"]
    assert ckptfs("cat", dst, "500", "model.bin").stdout == "other weights"
    said = json.loads(ckptfs("copy", "--json", src, dst, check=False).stdout)
    assert (said["steps"], said["failed"], said["copied"]) == (3, 1, 0)
    assert "500: would be copied over" in ckptfs("copy", "--dry-run", "--force", src, dst).stdout
    ckptfs("copy", "--force", src, dst)
    assert ckptfs("ls", "--trash", dst).stdout == "500\n"
    assert_same(ckptfs, scratch, src, dst, "500")


def test_one_changed_byte_makes_another_step(src, dst, ckptfs, scratch):
    """Of the same size and time: only the bytes say it."""
    ckptfs("copy", "--steps", "500", src, dst)
    for seals in ([], [src], [dst]):
        for store in seals:
            ckptfs("seal", store)
        assert ckptfs.json("copy", "--steps", "500", src, dst)["copied"] == 0
    changed = got(ckptfs, src, "500", scratch)
    file = changed / "params/layer_0/w0.bin"
    before = file.stat()
    data = bytearray(file.read_bytes())
    data[777] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    ckptfs("save", "--force", src, changed, "500")
    for seals in ([], [src]):
        for store in seals:
            ckptfs("seal", store)
        assert ckptfs("copy", "--steps", "500", src, dst, check=False).returncode == 1


def change_mode(folder):
    (folder / "config.json").chmod(0o600)


def change_time(folder):
    os.utime(folder / "config.json", ns=(1, 5))


def change_link(folder):
    file = folder / "config.json"
    data, st = file.read_bytes(), file.stat()
    file.unlink()
    file.write_bytes(data)
    file.chmod(st.st_mode)
    os.utime(file, ns=(1, st.st_mtime_ns))


def change_symlink(folder):
    st = os.lstat(folder / "first")
    (folder / "first").unlink()
    os.symlink("params/layer_1", folder / "first")
    os.utime(folder / "first", ns=(1, st.st_mtime_ns), follow_symlinks=False)


def change_name(folder):
    os.rename(folder / "empty", folder / "emptz")


def change_folder(folder):
    (folder / "nothing").rmdir()


def test_what_differs_without_bytes_makes_another_step(src, ckptfs, scratch):
    new = scratch / "new"
    ckptfs("copy", "--steps", "500", src, new)
    for change in (change_mode, change_time, change_link, change_symlink, change_name, change_folder):
        changed = got(ckptfs, new, "500", scratch)
        ckptfs("save", "--force", src, changed, "500")
        assert ckptfs.json("copy", "--steps", "500", src, new)["copied"] == 0, "as long as it is the same"
        change(changed)
        ckptfs("save", "--force", src, changed, "500")
        done = ckptfs("copy", "--steps", "500", src, new, check=False)
        assert done.returncode == 1 and "with other files" in done.stderr, change
        shutil.rmtree(changed)


def test_dry_run_makes_nothing(src, ckptfs, scratch):
    said = ckptfs("copy", "--dry-run", src, scratch / "new").stdout.splitlines()
    assert [line.split(":")[0] for line in said] == ["1000", "500", "step_7", "2000"] and all("would be copied, 1" in line for line in said)
    assert not (scratch / "new").exists()
    ckptfs("copy", "--steps", "500", src, scratch / "new")
    assert len(ckptfs("copy", "--dry-run", src, scratch / "new").stdout.splitlines()) == 3
    assert names(ckptfs, scratch / "new") == ["500"]


def test_destination_is_made_where_nothing_can_be_lost(world, src, ckptfs, scratch):
    (scratch / "empty").mkdir()
    ckptfs("copy", src, scratch / "empty")
    ckptfs("copy", "--steps", "500", f"file://{src}", f"file://{scratch}/a%20b")
    assert names(ckptfs, scratch / "a b") == ["500"]
    full = scratch / "full"
    full.mkdir()
    (full / "mine").write_text("x")
    mount = Mount.new(world, src, scratch / "mnt-src")
    for to, status, why in ((full, 1, "has files"), (scratch / "a/b", 1, "No such file"), (src, 2, "is SRC, too"), (mount.path, 2, "is SRC, too"),
                            (mount / "inside", 2, "a place in a store"), (scratch / "empty/inside", 2, "a place in a store"), (full / "mine", 1, "")):
        done = ckptfs("copy", src, to, check=False)
        assert done.returncode == status and why in done.stderr, (to, done.stderr)
    assert os.listdir(full) == ["mine"]
    done = ckptfs("copy", scratch / "absent", scratch / "new", check=False)
    assert done.returncode == 1 and "no such store" in done.stderr and not (scratch / "new").exists()


def test_damage_in_one_step_leaves_it_out_and_the_rest_goes_on(src, dst, ckptfs):
    session = next(p for p in (src / "sessions").iterdir() if (p / "since-1000").exists() and not (p / "since-500").exists())
    (session / "params/layer_0/w0.bin").unlink()
    done = ckptfs("copy", src, dst, check=False)
    assert done.returncode == 1 and "500/params/layer_0/w0.bin" in done.stderr and "verify" in done.stderr
    assert names(ckptfs, dst) == ["1000", "step_7", "2000"]
    assert ckptfs.json("sessions", dst) == [], "nothing half is left"


# --- Cut off ------------------------------------------------------------------------------------------------------------

BEFORE = ["00.safetensors", "a", "b"]  # what is copied before the copy is held up


class HeldUp:
    """A copy that has stopped in the middle of a step, where it would make the file "held-up"."""

    def __init__(self, client, ckptfs, large, dst, report):
        self.process = subprocess.Popen([client("inject"), report, dst, "held-up", "stop", ckptfs.path, "copy", large, dst], stdout=subprocess.DEVNULL)
        wait_until(self._has_stopped, 30, "the file that holds it up")
        [self.session] = [p for p in (dst / "sessions").iterdir() if (p / "a").exists()]
        assert not (self.session / "n").exists()
        self.inodes = self.whole()

    def _children(self):
        return open(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read().split()

    def _has_stopped(self):
        return any(") T " in open(f"/proc/{pid}/stat").read() for pid in self._children())

    def whole(self):
        return {name: (self.session / name).stat().st_ino for name in BEFORE}

    def send(self, number):
        for pid in self._children():
            os.kill(int(pid), number)

    def kill(self):
        self.send(signal.SIGKILL)
        assert self.process.wait(20) == 128 + signal.SIGKILL

    def end(self):
        if self.process.poll() is None:
            self.send(signal.SIGKILL)
        self.process.wait(20)


@pytest.fixture
def large(scratch, ckptfs):
    """A store with a small step, and one with a file that is cut off in the sense of its format, and links."""
    path, folder = scratch / "src", scratch / "folder"
    ckptfs("init", path)
    folder.mkdir()
    (folder / "small").write_bytes(b"small")
    ckptfs("save", path, folder, "1")
    (folder / "00.safetensors").write_bytes((1 << 20).to_bytes(8, "little") + b'{"cut')
    for name in ("a", "b", "held-up", "n"):
        (folder / name).write_bytes(trees.content(name, 3000))
        os.setxattr(folder / name, "user.note", name.encode())
        os.utime(folder / name, ns=(1, 10**18))
    os.link(folder / "a", folder / "also-a")
    os.symlink("small", folder / "at")
    (folder / "below").mkdir(mode=0o555)
    ckptfs("save", path, folder, "2")
    return path


@pytest.fixture
def cut_off(client, large, dst, ckptfs, scratch):
    copy = HeldUp(client, ckptfs, large, dst, scratch / "calls")
    yield copy
    copy.end()


def assert_goes_on(ckptfs, large, dst, cut_off, scratch):
    assert ckptfs("ls", dst).stdout == "1\n", "a half step does not show"
    done = ckptfs.json("copy", large, dst)
    assert (done["steps"], done["copied"]) == (2, 1)
    assert cut_off.whole() == cut_off.inodes, "a whole file was copied again"
    assert done["sent_bytes"] == 3000 + 3000 + len("small"), "the two others, and the small one after them"
    assert_same(ckptfs, scratch, large, dst, "1", "2")
    assert ckptfs.json("sessions", dst) == []


def test_killed_copy_goes_on(cut_off, large, dst, ckptfs, scratch):
    cut_off.kill()
    assert_goes_on(ckptfs, large, dst, cut_off, scratch)


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_copy_goes_on(cut_off, large, dst, ckptfs, scratch, sig):
    cut_off.send(sig)
    cut_off.send(signal.SIGCONT)
    assert cut_off.process.wait(20) == 128 + sig
    (cut_off.session / "held-up").unlink()  # it was copied to its end
    assert_goes_on(ckptfs, large, dst, cut_off, scratch)


def test_killed_copy_goes_on_after_a_restart_of_the_mount(cut_off, world, large, dst, where, ckptfs, scratch):
    cut_off.kill()
    if where == "mounted":
        subprocess.run(["umount", scratch / "mnt-dst"], check=True)
    mount = Mount.new(world, dst, scratch / "mnt-again")
    assert_goes_on(ckptfs, large, dst, cut_off, scratch)
    assert mount.listing() == ["1", "2"] and mount.errors() == []


def test_files_of_before_a_power_cut_are_copied_again(cut_off, large, dst, ckptfs, scratch):
    cut_off.kill()
    mark = os.getxattr(cut_off.session, "user.ckptfs.copy")
    os.setxattr(cut_off.session, "user.ckptfs.copy", b"00000000" + mark[8:])  # another start of the machine
    (cut_off.session / "a").write_bytes(bytes(3000))
    os.utime(cut_off.session / "a", ns=(1, 10**18))
    done = ckptfs.json("copy", large, dst)
    assert done["sent_bytes"] == done["bytes"] - len("small")
    assert_same(ckptfs, scratch, large, dst, "1", "2")
    assert ckptfs.json("sessions", dst) == []


def test_file_that_was_cut_off_is_copied_again(cut_off, large, dst, ckptfs, scratch):
    cut_off.kill()
    (cut_off.session / "b").write_bytes(b"half of i")  # with the time of that, as while it is copied
    done = ckptfs.json("copy", large, dst)
    assert done["sent_bytes"] == 3 * 3000 + len("small")
    assert_same(ckptfs, scratch, large, dst, "1", "2")


def test_two_copies_do_not_write_one_step(cut_off, large, dst, where, ckptfs, scratch):
    second = ckptfs("copy", large, dst, check=False)
    why = "2: another process is copying this step" if where == "mounted" else f"{dst}: another ckptfs command is at work on it"
    assert second.returncode == 1 and second.stderr.startswith(f"ckptfs: {why}\nhint: wait"), second.stderr
    cut_off.send(signal.SIGCONT)
    assert cut_off.process.wait(30) == 0
    assert_same(ckptfs, scratch, large, dst, "1", "2")


@needs_root
def test_full_disk_ends_a_copy_with_nothing_half(world, scratch, ckptfs, src):
    disk = LoopDisk(world, 64)
    big = scratch / "big"
    big.mkdir()
    (big / "zz").write_bytes(bytes(range(256)) * 400_000)
    for name in ("3000", "4000"):
        ckptfs("save", src, big, name)
    done = ckptfs("copy", src, disk.path / "store", check=False)
    assert done.returncode == 1 and "3000/zz: No space left" in done.stderr and "1 more steps were not tried" in done.stderr and "4000" not in done.stderr
    assert names(ckptfs, disk.path / "store") == ["1000", "500", "step_7", "2000"] and ckptfs.json("sessions", disk.path / "store") == []
