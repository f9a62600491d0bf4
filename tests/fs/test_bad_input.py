"""Hostile and damaged input: names, stores, records, planted symlinks, wrong command lines. A clear error, nothing lost."""

import hashlib
import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from support import trees
from support.fixtures import both_modes, needs_root
from support.mounting import Mount, MountFailed, errno_name, mount_entry, mounts_below

pytestmark = pytest.mark.timeout(90)

SECRET = b"SECRET of outside the store\n"


def raw_errno(call, *args):
    with pytest.raises(OSError) as e:
        call(*args)
    return errno_name(e.value)


def refused(ckptfs, *args, status=1, **kwargs):
    """The verb's complaint: one line with our name, after it at most hints; nothing on stdout; the right exit status."""
    done = ckptfs(*args, check=False, **kwargs)
    assert done.returncode == status, f"{args}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
    lines = done.stderr.splitlines()
    assert lines and lines[0].startswith("ckptfs: "), done.stderr
    assert all(line.startswith("hint: ") for line in lines[1:]), done.stderr
    assert done.stdout == ""
    return done.stderr


# --- Names ------------------------------------------------------------------------------------------------------------

BAD_NAMES = {b"a\nb": "EINVAL", b"a\tb": "EINVAL", b"\x01": "EINVAL", b"del\x7f": "EINVAL", b"x\x1b[31m": "EINVAL", b"x" * 256: "ENAMETOOLONG",
             "é".encode() * 128: "ENAMETOOLONG", b"bad\xff": "EILSEQ", b"\xc0\xafslash": "EILSEQ", b"\xed\xa0\x80": "EILSEQ"}


@both_modes
def test_names_with_control_bytes_too_long_or_not_utf8_are_refused_everywhere(mount, stage, commit):
    stage("1000")
    (mount / "plain").mkdir()
    for folder in ("1000", "1000/params", "plain", "."):
        at = os.fsencode(mount / folder)
        trees.write(os.path.join(at, b"source"), b"s")
        os.mkdir(os.path.join(at, b"sourcedir"))
        for name, want in BAD_NAMES.items():
            path, source = os.path.join(at, name), os.path.join(at, b"source")
            makers = {"mkdir": lambda: os.mkdir(path), "create": lambda: os.open(path, os.O_CREAT | os.O_WRONLY), "symlink": lambda: os.symlink("t", path),
                      "link": lambda: os.link(source, path), "rename": lambda: os.rename(source, path),
                      "rename of a directory": lambda: os.rename(os.path.join(at, b"sourcedir"), path)}
            outcome = {what: raw_errno(make) for what, make in makers.items()}
            assert outcome == dict.fromkeys(makers, want), f"{name!r} in {folder}"
            assert not os.path.lexists(path) if len(name) <= 255 else True
        os.unlink(os.path.join(at, b"source"))
        os.rmdir(os.path.join(at, b"sourcedir"))
    for name, want in BAD_NAMES.items():
        staged = os.fsencode(mount / "1000")
        assert raw_errno(os.rename, staged, os.path.join(os.fsencode(mount.path), name)) == want
    commit(mount / "1000")
    assert mount.listing() == ["1000", "plain"]


def test_nothing_is_refused_only_at_commit(mount, commit):
    """Trees that are deeper than a step may be are refused when they are made, not when all is written."""
    path = mount / "1000"
    path.mkdir()
    trees.write(path / "f", b"x")
    for _ in range(80):
        path = path / "d"
        try:
            path.mkdir()
        except OSError:
            break
        trees.write(path / "f", b"x")
    made = trees.files(mount / "1000")
    commit(mount / "1000")
    assert mount.listing() == ["1000"] and trees.files(mount / "1000") == made


# A rename from a temp name may give a step any name; one without a step form has no other way to become one.
@pytest.mark.parametrize("final", ["step_" + "9" * 250, "step_" + "é" * 60 + "_1", "checkpoint-%2F..%2F7", "step_ 1", "..1",
                                   "step_'\"\\$(x)_3", "%%" + "a" * 64 + "_step_1"])
def test_odd_step_names_are_kept_exactly(mount, commit, ckptfs, store, final):
    name = final if len(final.encode()) > 200 else final + ".partial_save"
    (mount / name).mkdir()
    trees.write(mount / name / "f", b"x")
    if final == name:
        commit(mount / name)
    else:
        os.rename(mount / name, mount / final)
    for _ in range(2):
        assert mount.listing() == [final]
        assert (mount / final / "f").read_bytes() == b"x"
        assert [s["name"] for s in ckptfs.json("ls", store)] == [final]
        mount.remount()


def test_attributes_of_ours_cannot_be_forged_by_a_client(mount, commit):
    (mount / "1000").mkdir()
    (mount / "plain").mkdir()
    for folder in ("1000", "plain"):
        path = mount / folder / "f"
        trees.write(path, b"x", 0o640)
        before = trees.describe(path.parent)["f"]
        for name in ("user.ckptfs.stat", "user.ckptfs.folder", "user.ckptfs.sha256", "trusted.overlay.opaque"):
            for target in (path, path.parent):
                try:
                    os.setxattr(target, name, b"\0garbage\xff" * 3)
                except OSError as e:
                    assert errno_name(e) in ("EPERM", "EACCES", "EOPNOTSUPP", "EINVAL")
        assert trees.describe(path.parent)["f"] == before
    commit(mount / "1000")
    mount.remount()
    assert mount.listing() == ["1000", "plain"]
    assert stat_of(mount / "1000/f") == (0o640, 1)


def stat_of(path):
    st = os.stat(path)
    return st.st_mode & 0o7777, st.st_size


# --- Damaged stores ---------------------------------------------------------------------------------------------------


def long_names(folder):
    """Files whose names fill a manifest beyond what a record takes in."""
    made = {f"{i:03}" + "n" * 250: b"%d" % i for i in range(260)}
    for name, data in made.items():
        trees.write(folder / name, data)
    return made


@pytest.fixture
def two_steps(world, store, commit):
    """An unmounted store with steps 1 (small) and 2 (a manifest of its own); {step: files}."""
    m = Mount.new(world, store)
    made = {}
    for name in ("1", "2"):
        (m / name).mkdir()
        made[name] = trees.fill(m / name, seed=name, files=6, size=50)
        if name == "2":
            made[name] |= long_names(m / name)
        commit(m / name)
    m.umount()
    return made


def entry(store, number):
    """Of the log: the act with this number, from 1; here the first two save steps 1 and 2."""
    return store / "log" / f"{number:016x}"


def big_manifest(store):
    [path] = [p for p in (store / "m").rglob("*") if p.is_file()]
    return path


def damaged_in(path, how):
    data = bytearray(path.read_bytes())
    if how == "first byte":
        data[0] ^= 1
    elif how == "middle byte":
        data[len(data) // 2] ^= 0x80
    elif how == "last byte":
        data[-1] ^= 1
    elif how == "cut":
        data = data[:len(data) * 2 // 3]
    elif how == "empty":
        data = b""
    elif how == "grown":
        data += b"\0"
    elif how == "zeros":
        data = bytes(len(data))
    elif how == "huge":
        path.unlink()
        with open(path, "wb") as f:
            f.truncate(5 << 30)
        return
    os.chmod(path, 0o600)
    path.write_bytes(data)


def reads_right_or_not_at_all(folder, made):
    """Everything that can be read of a damaged step is right; no file has other bytes, and no other file appears."""
    try:
        names = [str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file() and not p.is_symlink()]
    except OSError:
        return
    assert set(names) <= set(made)
    for name in names:
        try:
            data = (folder / name).read_bytes()
        except OSError:
            continue
        assert data == made[name]


HOW = ["first byte", "middle byte", "last byte", "cut", "empty", "grown", "zeros", "huge", "removed"]


@pytest.mark.parametrize("how", HOW)
def test_damaged_entry_of_the_log_is_reported_and_harms_no_other_step(world, two_steps, store, ckptfs, commit, how):
    path = entry(store, 1)
    path.unlink() if how == "removed" else damaged_in(path, how)
    done = ckptfs("verify", store, "--json", check=False)
    assert done.returncode == 1 and any(path.name in (b["path"] or "") for b in json.loads(done.stdout)["bad"])
    assert [r["name"] for r in ckptfs.json("ls", store)] == ["2"]
    with pytest.raises(MountFailed, match="doctor"):  # nothing is written behind it
        Mount.new(world, store)
    m = Mount.new(world, store, options=["ro"])
    assert m.listing() == ["2"] and trees.files(m / "2") == two_steps["2"]
    assert any(path.name in line for line in m.errors())
    m.umount()
    assert path.name in ckptfs("doctor", store, check=False).stdout
    assert path.name in ckptfs("doctor", "--repair", store).stderr
    m = Mount.new(world, store)  # a copy of its record was there
    assert m.listing() == ["1", "2"] and {n: trees.files(m / n) for n in ("1", "2")} == two_steps
    assert any("\t1\t" in line and "had lost it" in line for line in m.errors())
    (m / "3").mkdir()
    commit(m / "3")
    m.remount()
    assert m.listing() == ["1", "2", "3"] and trees.files(m / "1") == two_steps["1"]


def test_step_that_the_log_has_lost_with_its_record_is_an_unfinished_save(world, two_steps, store, ckptfs, commit):
    damaged_in(entry(store, 1), "zeros")
    for copy in (store / "records").iterdir():
        copy.unlink()
    ckptfs("doctor", "--repair", store)
    m = Mount.new(world, store)
    assert m.listing() == ["2"] and trees.files(m / "1") == two_steps["1"]
    commit(m / "1")
    m.remount()
    assert m.listing() == ["1", "2"] and trees.files(m / "1") == two_steps["1"]


@pytest.mark.parametrize("index", ["with index", "without index"])
@pytest.mark.parametrize("how", HOW)
def test_damaged_manifest_is_reported_and_harms_no_other_step(world, two_steps, store, ckptfs, commit, how, index):
    victim, intact = "2", "1"
    path = big_manifest(store)
    path.unlink() if how == "removed" else damaged_in(path, how)
    if index == "without index":
        shutil.rmtree(store / "index")
    done = ckptfs("verify", store, "--json", check=False)
    assert done.returncode == 1
    assert victim in {b["step"] for b in json.loads(done.stdout)["bad"]}
    m = Mount.new(world, store)
    assert intact in m.listing()
    assert trees.files(m / intact) == two_steps[intact]
    reads_right_or_not_at_all(m / victim, two_steps[victim])
    (m / "3").mkdir()
    trees.write(m / "3/f", b"x")
    commit(m / "3")
    assert "3" in m.listing() and m.alive()
    m.umount()
    done = ckptfs("verify", store, "--json", check=False)
    assert intact not in {b["step"] for b in json.loads(done.stdout)["bad"]}


def test_entry_of_a_newer_version_is_refused_and_said_to_be_newer(world, two_steps, store, ckptfs):
    path = entry(store, 2)
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, 8, struct.unpack_from("<H", data, 8)[0] + 1)  # major version, core/FORMAT.md
    data[-32:] = hashlib.sha256(data[:-32]).digest()
    os.chmod(path, 0o600)
    path.write_bytes(data)
    done = ckptfs("verify", store, check=False)
    assert done.returncode != 0 and "newer" in done.stdout + done.stderr
    with pytest.raises(MountFailed, match="newer"):
        Mount.new(world, store)
    assert path.read_bytes() == bytes(data)


def test_entry_copied_behind_the_log_is_not_believed(world, two_steps, store, ckptfs):
    shutil.copy(entry(store, 1), entry(store, 3))
    with pytest.raises(MountFailed, match="doctor"):
        Mount.new(world, store)
    assert [r["name"] for r in ckptfs.json("ls", store)] == ["1", "2"]


def test_a_store_of_before_the_log_is_refused_in_one_line(world, two_steps, store, ckptfs):
    identity = json.loads((store / "store.json").read_text())
    (store / "store.json").write_text(json.dumps(identity | {"required": []}))
    with pytest.raises(MountFailed, match="older"):
        Mount.new(world, store)
    done = ckptfs("ls", store, check=False)
    assert done.returncode != 0 and "older ckptfs" in done.stderr


@pytest.mark.parametrize("change", ["cut", "other bytes", "removed", "grown", "a directory"])
def test_raw_file_that_is_not_what_the_manifest_says_gives_an_error_or_the_right_size(world, two_steps, store, ckptfs, change):
    """Raw bytes are not hashed yet, so other bytes of the same length are out of scope; everything else is seen."""
    [raw] = [p for p in (store / "sessions").rglob("w3.bin") if len(p.read_bytes()) == len(two_steps["1"]["params/layer_0/w3.bin"])
             and p.read_bytes() == two_steps["1"]["params/layer_0/w3.bin"]]
    data = raw.read_bytes()
    os.chmod(raw, 0o600)
    if change in ("removed", "a directory"):
        raw.unlink()
        if change == "a directory":
            raw.mkdir()
    else:
        raw.write_bytes({"cut": data[:-1], "other bytes": data[::-1], "grown": data + b"x"}[change])
    if change != "other bytes":
        done = ckptfs("verify", store, "--json", check=False)
        assert done.returncode == 1
        assert [(b["step"], b["path"]) for b in json.loads(done.stdout)["bad"]] == [("1", "params/layer_0/w3.bin")]
    m = Mount.new(world, store)
    assert m.listing() == ["1", "2"]
    path = m / "1/params/layer_0/w3.bin"
    if change == "other bytes":
        assert len(path.read_bytes()) == len(data)
    else:
        with pytest.raises(OSError) as e:
            path.read_bytes()
        assert errno_name(e.value) == "EIO"
        assert any("1" in line and "w3.bin" in line for line in m.errors())
    others = two_steps["1"] | {}
    others.pop("params/layer_0/w3.bin")
    assert {p: (m / "1" / p).read_bytes() for p in others} == others


def test_manifest_that_is_damaged_under_an_open_file_is_what_is_told(mount, stage, commit, store):
    made = stage("1000")
    commit(mount / "1000")
    mount.remount()
    fd = os.open(mount / "1000/config.json", os.O_RDONLY)
    assert os.pread(fd, 100, 0) == made["config.json"]
    (mount / "large").mkdir()
    for n in range(10_500):  # more than is kept of manifests in memory: that of 1000 goes
        path = mount / f"large/{n}"
        path.touch()
        os.setxattr(path, "user.filler", bytes(3400))
    commit(mount / "large")
    damaged_in(entry(store, 1), "middle byte")
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert raw_errno(os.pread, fd, 100, 0) == "EIO"
    os.close(fd)
    told = mount.errors()
    assert told and all("the manifest of version 1 is damaged" in line for line in told)


@pytest.mark.parametrize("text, word", [
    ('{"format": 2, "id": "%s", "created_ns": 1}', "newer"), ('{"format": 999999999999, "id": "%s", "created_ns": 1}', "newer"),
    ('{"format": 1, "id": "%s", "created_ns": 1, "required": ["time-travel"]}', "newer"),
    ("", None), ("{", None), ("[]", None), ('{"format": "one", "id": "%s"}', None), ('{"format": 1, "id": "../../etc"}', None),
    ('{"format": 1}', None), ("\0" * 100, None), ('{"a":' * 100_000, None)], ids=lambda t: str(t)[:30])
def test_identity_of_a_newer_or_damaged_store_is_refused(two_steps, store, scratch, ckptfs, text, word):
    identity = store / "store.json"
    good = identity.read_text()
    identity.write_text(text % json.loads(good)["id"] if "%s" in text else text)
    (scratch / "m").mkdir()
    complaint = refused(ckptfs, "mount", store, scratch / "m")
    assert word is None or word in complaint
    assert mounts_below(scratch) == []
    refused(ckptfs, "ls", store)
    identity.write_text(good)
    assert [s["name"] for s in ckptfs.json("ls", store)] == ["1", "2"]


# --- Planted symlinks -------------------------------------------------------------------------------------------------


def outside_twin(scratch, original):
    """A copy outside the store of what a symlink is to replace, each file with secret bytes of the same length and time."""
    twin = scratch / "outside" / original.name
    twin.parent.mkdir(exist_ok=True)
    if original.is_dir():
        shutil.copytree(original, twin, symlinks=True)
    else:
        shutil.copy2(original, twin)
    for path in [twin, *twin.rglob("*")] if twin.is_dir() else [twin]:
        if path.is_file() and not path.is_symlink() and (path.suffix in (".bin", ".txt") or path.name == "config.json"):
            st = path.stat()
            path.write_bytes((SECRET * (st.st_size // len(SECRET) + 1))[:st.st_size])
            os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
    return twin


def every_byte_below(folder):
    """What any client could read, following no symlink itself."""
    out = []
    for at, names, files in os.walk(folder):
        for name in files:
            path = os.path.join(at, name)
            if os.path.islink(path):
                continue
            try:
                out.append(Path(path).read_bytes())
            except OSError:
                pass
    return out


@pytest.mark.parametrize("level", ["log", "log/0000000000000001", "snap", "m", "manifest", "sessions", "session", "session/params", "session/params/layer_0",
                                   "session/params/layer_0/w0.bin", "tree", "tree/plain", "tree/plain/deep", "tree/plain/note.txt", "index", "trash",
                                   "store.json", "lock", "errors", "holder.json"])
def test_symlink_planted_in_the_store_is_never_followed(world, store, scratch, commit, ckptfs, level):
    m = Mount.new(world, store)
    (m / "1").mkdir()
    made = {"1": trees.fill(m / "1", seed="1")}
    commit(m / "1")
    session = next(p for p in (store / "sessions").iterdir() if (p / "config.json").exists())
    (m / "2").mkdir()
    made["2"] = trees.fill(m / "2", seed="2", files=6, size=50) | long_names(m / "2")
    commit(m / "2")
    (m / "plain/deep").mkdir(parents=True)
    trees.write(m / "plain/note.txt", b"a note")
    trees.write(m / "plain/deep/x.txt", b"deep note")
    m.umount()
    if level == "manifest":
        planted = big_manifest(store)
    elif level.startswith("session/") or level == "session":
        planted = session / level.removeprefix("session").lstrip("/")
    else:
        planted = store / level
    if not planted.exists():
        planted.write_text("")
    twin = outside_twin(scratch, planted)
    before = trees.describe(scratch / "outside")
    os.rename(planted, scratch / "moved")
    os.symlink(os.path.relpath(twin, planted.parent), planted)  # leads nowhere from the mount: no client follows it by itself
    try:
        m.start()
    except MountFailed as e:  # refusing such a store is right, with a line that says so
        assert "ckptfs: " in str(e), str(e)
        assert mounts_below(scratch) == []
    else:
        read = every_byte_below(m.path)
        assert not [d for d in read if SECRET[:8] in d], "bytes from outside the store are visible"
        for name in ("1", "2"):
            reads_right_or_not_at_all(m / name, made[name])
        for path in ("plain/new.txt", "plain/deep/new.txt", "9/new.txt"):
            try:
                (m / path).parent.mkdir(exist_ok=True)
                trees.write(m / path, b"written through the mount")
                if path.startswith("9"):
                    commit(m / "9")
            except OSError:
                pass
        m.errors()
        m.umount()
    for verb in (["ls"], ["verify"], ["info"], ["sessions"], ["ls", "1"], ["cat", "1", "params/layer_0/w0.bin"]):
        done = subprocess.run([ckptfs.path, verb[0], store, *verb[1:]], capture_output=True, check=False, timeout=30)
        assert SECRET[:8] not in done.stdout
    assert trees.describe(scratch / "outside") == before, "something was changed outside the store"


@both_modes
def test_symlink_planted_under_a_living_mount_leads_nowhere(mount, store, scratch, commit):
    for folder in ("1000", "plain"):
        (mount / folder / "sub").mkdir(parents=True)
        trees.write(mount / folder / "sub/f", b"in")
    outside = scratch / "outside"
    outside.mkdir()
    trees.write(outside / "f", SECRET)
    session = next(p for p in (store / "sessions").iterdir() if (p / "sub").exists())
    for planted in (session / "sub", store / "tree/plain/sub"):
        os.rename(planted, planted.with_name("aside"))
        os.symlink("../../../outside", planted)  # seen from the mount it leads to nothing, so a client cannot be what follows it
        assert (planted / "f").read_bytes() == SECRET
    for folder in ("1000", "plain"):
        for attempt in (lambda p: trees.write(p / "new", b"x"), lambda p: trees.write(p / "f", b"x"), lambda p: os.unlink(p / "f"), lambda p: os.mkdir(p / "d"),
                        lambda p: os.rename(p / "f", p / "g"), lambda p: os.chmod(p / "f", 0o777), lambda p: os.truncate(p / "f", 0)):
            try:
                attempt(mount / folder / "sub")
            except OSError:
                pass
        assert SECRET not in every_byte_below(mount / folder)
        assert trees.files(outside) == {"f": SECRET} and os.stat(outside / "f").st_mode & 0o777 == 0o644
    try:
        commit(mount / "1000")
    except OSError:
        pass
    mount.remount()
    assert SECRET not in every_byte_below(mount.path)
    assert trees.files(outside) == {"f": SECRET}


def test_devices_and_fifos_planted_in_the_store_do_not_hang_or_show(world, store, commit):
    m = Mount.new(world, store)
    (m / "1").mkdir()
    made = trees.fill(m / "1")
    commit(m / "1")
    (m / "plain").mkdir()
    m.umount()
    session = next((store / "sessions").iterdir())
    os.unlink(session / "config.json")
    os.mkfifo(session / "config.json")
    os.mkfifo(store / "tree/fifo")
    os.mkfifo(store / "tree/plain/fifo")
    os.mkfifo(store / "log/fifo")
    m.start()
    with pytest.raises(OSError):
        (m / "1/config.json").read_bytes()
    assert (m / "1/params/layer_0/w0.bin").read_bytes() == made["params/layer_0/w0.bin"]
    for folder in (".", "plain"):
        for entry in os.scandir(m / folder):
            assert entry.is_dir() or entry.is_file(), f"{entry.name} shows"


# --- Wrong command lines ----------------------------------------------------------------------------------------------


def test_second_read_write_mount_is_told_where_the_first_is(mount, scratch, store, ckptfs):
    (scratch / "second").mkdir()
    complaint = refused(ckptfs, "mount", store, scratch / "second")
    assert str(mount.path) in complaint
    assert mount_entry(scratch / "second") is None
    (mount / "1").mkdir()  # the first is none the worse


def test_lock_of_a_dead_holder_does_not_count(mount, stage, commit):
    made = stage("1")
    commit(mount / "1")
    mount.kill9()
    mount.start()
    assert trees.files(mount / "1") == made


def test_mount_point_that_is_absent_busy_or_no_directory(mount, scratch, ckptfs):
    other = scratch / "other"
    complaint = refused(ckptfs, "mount", other, scratch / "absent")
    assert "absent" in complaint
    (scratch / "file").write_text("x")
    refused(ckptfs, "mount", other, scratch / "file")
    complaint = refused(ckptfs, "mount", other, mount.path)
    assert str(mount.path) in complaint
    assert len(mounts_below(mount.path)) == 1
    assert not (other / "lock").exists() or ckptfs("ls", other).returncode == 0


def test_mount_point_with_files_in_it_keeps_them(world, store, scratch):
    (scratch / "mnt").mkdir()
    (scratch / "mnt/mine").write_text("x")
    try:
        m = Mount.new(world, store, path=scratch / "mnt")
        m.umount()
    except MountFailed as e:
        assert "ckptfs: " in str(e)
    assert (scratch / "mnt/mine").read_text() == "x"


def test_store_inside_its_own_mount_point_is_refused(scratch, ckptfs):
    (scratch / "m/sub").mkdir(parents=True)
    for store in ("m/sub/store", "m", "m/store"):
        refused(ckptfs, "mount", scratch / store, scratch / "m")
        assert mounts_below(scratch) == []


def test_what_is_not_a_store_is_refused_and_left_alone(scratch, ckptfs):
    (scratch / "m").mkdir()
    (scratch / "photos").mkdir()
    (scratch / "photos/cat.jpg").write_bytes(b"meow")
    (scratch / "file").write_bytes(b"x")
    for what in ("photos", "file"):
        refused(ckptfs, "mount", scratch / what, scratch / "m")
        refused(ckptfs, "ls", scratch / what)
    refused(ckptfs, "ls", scratch / "nowhere")
    refused(ckptfs, "mount", scratch / "no/such/parent", scratch / "m")
    assert os.listdir(scratch / "photos") == ["cat.jpg"]
    assert mounts_below(scratch) == []


@needs_root
def test_store_that_may_not_be_written_is_refused(scratch, two_steps, store, ckptfs):
    (scratch / "m").mkdir()
    subprocess.run(["mount", "--bind", store, store], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", store], check=True)
        refused(ckptfs, "mount", store, scratch / "m")
        assert [s["name"] for s in ckptfs.json("ls", store)] == ["1", "2"]
    finally:
        subprocess.run(["umount", store], check=True)


@pytest.mark.parametrize("arguments", [[], ["mount"], ["mount", "STORE"], ["mount", "STORE", "DIR", "extra"], ["nosuchverb"], ["mount", "--nosuch", "STORE", "DIR"],
                                       ["mount", "STORE", "DIR", "-o"], ["ls", "--nosuch"]])
def test_wrong_usage_is_exit_status_2(scratch, ckptfs, arguments):
    (scratch / "dir").mkdir()
    refused(ckptfs, *[{"STORE": scratch / "s", "DIR": scratch / "dir"}.get(a, a) for a in arguments], status=2)
    assert not (scratch / "s").exists()
    assert mounts_below(scratch) == []


@pytest.mark.parametrize("option, near", [("no_passthru", "no_passthrough"), ("alow_other", "allow_other"), ("open_writer=5s", "open_writers"), ("nonsense", None)])
def test_unknown_option_is_refused_with_the_nearest_known_one(scratch, ckptfs, option, near):
    (scratch / "dir").mkdir()
    complaint = refused(ckptfs, "mount", scratch / "s", scratch / "dir", "-o", f"ro,{option}", status=2)
    assert option.split("=")[0] in complaint
    assert near is None or near in complaint
    assert mounts_below(scratch) == []


@pytest.mark.parametrize("option", ["open_writers=soon", "open_writers=-5s", "open_writers=", "commit_timeout=5parsecs", "marker=a/b", "marker=", "marker=..",
                                    "log_level=loud", "umask=9", "open_writers=99999999999999999999s"])
def test_option_with_a_value_that_makes_no_sense_is_refused(scratch, ckptfs, option):
    (scratch / "dir").mkdir()
    complaint = refused(ckptfs, "mount", scratch / "s", scratch / "dir", "-o", option, status=2)
    assert option.split("=")[0] in complaint
    assert mounts_below(scratch) == []
