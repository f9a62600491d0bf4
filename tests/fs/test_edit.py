"""Attributes of what is in a committed step: chmod, chown, utimes and setxattr are an edit. They are seen at once, the step stays listed, and
one version has them a second after the last."""

import os
import shutil
import subprocess
import time

import pytest

from support import trees
from support.fixtures import all_modes, both_modes, needs_root
from support.mounting import errno_name, wait_until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def made(mount, stage, commit):
    """The step 1000: {path: bytes}."""
    files = stage("1000")
    commit(mount / "1000")
    return files


@pytest.fixture
def events(ckptfs, store):
    def of(name="1000"):
        return [v["event"] for v in ckptfs.json("info", store, name)["versions"]]
    return of


@pytest.fixture
def sound(mount, made, ckptfs, store):
    """The step is listed and has what it had, and verify agrees."""
    def check(added=(), gone=()):
        assert "1000" in mount.listing()
        assert trees.files(mount / "1000") == {k: v for k, v in made.items() if k not in gone} | dict(added)
        assert ckptfs.json("verify", store)["bad"] == []
    return check


def look(path):
    s = os.lstat(path)
    return s.st_mode & 0o7777, s.st_uid, s.st_gid, s.st_mtime_ns


CHANGES = {
    "chmod": (lambda p: os.chmod(p, 0o604 if not os.path.isdir(p) else 0o705), lambda p: os.stat(p).st_mode & 0o7777 in (0o604, 0o705)),
    "utime": (lambda p: os.utime(p, ns=(1, 1_500_000_000_123_456_789)), lambda p: os.stat(p).st_mtime_ns == 1_500_000_000_123_456_789),
    "setxattr": (lambda p: os.setxattr(p, "user.note", b"good"), lambda p: os.getxattr(p, "user.note") == b"good" and os.listxattr(p) == ["user.note"]),
    "chown": (lambda p: os.chown(p, 12, 34), lambda p: look(p)[1:3] == (12, 34)),
}


@all_modes
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("remounted", [False, True], ids=["just committed", "read from the store"])
def test_a_change_is_seen_at_once_and_is_one_version(mount, made, sound, events, change, remounted):
    if change == "chown" and os.geteuid():
        pytest.skip("who is not root gives nothing away")
    if remounted:
        mount.remount()
    act, holds = CHANGES[change]
    paths = [mount / "1000" / p for p in ("", "config.json", "params", "params/layer_0/w0.bin", "empty")]
    numbers = [os.stat(p).st_ino for p in paths]
    for path in paths:
        act(path)
        assert holds(path) and "1000" in mount.listing()
    wait_until(lambda: len(events()) == 2)
    assert events() == ["marker", "edit"] and all(map(holds, paths))
    sound()
    mount.kill9()
    mount.start()
    assert all(map(holds, paths)) and [os.stat(p).st_ino for p in paths] == numbers
    sound()
    assert mount.errors() == []


def test_many_changes_are_one_version_and_readers_read_on(mount, made, sound, events):
    with open(mount / "1000/params/layer_0/w0.bin", "rb") as f:
        subprocess.run(["chmod", "-R", "g+w,o-r", mount / "1000"], check=True)
        for path in ["", *made]:
            os.utime(mount / "1000" / path, (1577836800, 1577836800))
        os.setxattr(mount / "1000/config.json", "user.a", b"1")
        os.removexattr(mount / "1000/config.json", "user.a")
        wait_until(lambda: len(events()) == 2)
        assert f.read() == made["params/layer_0/w0.bin"]
    assert events() == ["marker", "edit"]
    for path in ["", *made]:
        mode, _, _, mtime = look(mount / "1000" / path)
        assert mode & 0o024 == 0o020 and mtime == 1577836800 * 10**9
    sound()


def test_fsync_of_the_file_or_its_folder_makes_it_durable(mount, made, events):
    for i, (place, flags) in enumerate((("config.json", os.O_RDONLY), ("params", os.O_RDONLY | os.O_DIRECTORY), ("", os.O_RDONLY | os.O_DIRECTORY))):
        fd = os.open(mount / "1000" / place, flags)
        os.utime(fd, ns=(1, 1_000_000_000 + i))
        os.fsync(fd)
        assert len(events()) == 2 + i
        os.close(fd)
    mount.kill9()
    mount.start()
    assert [os.stat(mount / "1000" / p).st_mtime_ns for p in ("config.json", "params", "")] == [1_000_000_000 + i for i in range(3)]


def test_a_crash_before_the_version_has_the_version_before(mount, made, sound, events):
    before = look(mount / "1000/config.json")
    os.chmod(mount / "1000/config.json", 0o600)
    mount.kill9()
    mount.start()
    assert events() == ["marker"] and look(mount / "1000/config.json") == before
    sound()


def test_an_orderly_end_has_it(mount, made, sound, events):
    os.chmod(mount / "1000/config.json", 0o600)
    mount.remount()
    assert events() == ["marker", "edit"] and look(mount / "1000/config.json")[0] == 0o600
    sound()


def test_what_it_is_already_is_no_change(mount, made, events):
    for path in ("", "config.json", "params"):
        mode, uid, gid, mtime = look(mount / "1000" / path)
        os.chmod(mount / "1000" / path, mode)
        os.chown(mount / "1000" / path, uid, gid)
        os.utime(mount / "1000" / path, ns=(1, mtime))
    time.sleep(1.5)
    assert events() == ["marker"]


def test_xattrs_as_on_a_disk(mount, made):
    path = mount / "1000/config.json"

    def error(call, *args):
        with pytest.raises(OSError) as e:
            call(*args)
        return errno_name(e.value)

    assert error(os.getxattr, path, "user.x") == error(os.removexattr, path, "user.x") == error(os.setxattr, path, "user.x", b"", os.XATTR_REPLACE) == "ENODATA"
    os.setxattr(path, "user.x", b"", os.XATTR_CREATE)
    assert error(os.setxattr, path, "user.x", b"", os.XATTR_CREATE) == "EEXIST"
    os.setxattr(path, "user.x", b"1" * 1000, os.XATTR_REPLACE)
    os.setxattr(path, "user.y", b"2")
    assert sorted(os.listxattr(path)) == ["user.x", "user.y"] and os.getxattr(path, "user.x") == b"1" * 1000
    os.removexattr(path, "user.x")
    mount.remount()
    assert os.listxattr(path) == ["user.y"]
    assert error(os.setxattr, path, "user.ckptfs.raw", b"1") == "EPERM" and error(os.getxattr, path, "user.ckptfs.raw") == "ENODATA"


def test_a_link_has_an_owner_and_a_time(mount, made, sound):
    os.symlink("config.json", mount / "1000/link")
    os.utime(mount / "1000/link", ns=(1, 7_000_000_000), follow_symlinks=False)
    assert look(mount / "1000/link")[3] == 7_000_000_000
    mount.remount()
    assert look(mount / "1000/link")[3] == 7_000_000_000
    sound()


@needs_root
@pytest.mark.parametrize("options", ["allow_other"], indirect=True)
def test_who_may_change_them_is_decided_as_on_a_disk(mount, made, agent, scratch):
    os.chmod(scratch, 0o755)
    os.chown(mount / "1000/config.json", 1234, 1234)
    a = agent(uid=1234)
    path = str(mount / "1000/config.json")
    a.run("os.chmod(path, 0o640)", path=path)
    assert a.errno_of("os.chown(path, 1, 1)", path=path) == "EPERM"
    assert a.errno_of("os.chmod(other, 0o777)", other=str(mount / "1000/empty")) == "EPERM"
    assert a.errno_of("os.utime(other, ns=(1, 1))", other=str(mount / "1000/empty")) == "EPERM"
    assert look(path)[:3] == (0o640, 1234, 1234)


@both_modes
def test_a_changed_step_can_be_changed_and_cooled_like_any(mount, made, ckptfs, store, sound):
    path = mount / "1000/params/layer_0/w0.bin"
    os.chmod(path, 0o604)
    os.utime(path, ns=(1, 5_000_000_000))
    os.setxattr(path, "user.note", b"kept")
    with open(path, "rb") as f:
        assert f.read(4) == made["params/layer_0/w0.bin"][:4]
        ckptfs("cool", mount.path, "1000")
        assert f.read() == made["params/layer_0/w0.bin"][4:]
    sound()
    os.chmod(path, 0o600)
    ckptfs("warm", mount.path, "1000")
    sound()
    assert look(path)[0] == 0o600 and look(path)[3] == 5_000_000_000
    trees.write(mount / "1000/config.json", b"again")
    trees.write(mount / "1000/.finalize", b"")
    assert look(path)[0] == 0o600 and look(path)[3] == 5_000_000_000 and os.getxattr(path, "user.note") == b"kept"
    sound({"config.json": b"again"}, gone=["config.json"])


PROGRAMS = {
    "shutil.copy": lambda f, d: shutil.copy(f, d),
    "shutil.copy2": lambda f, d: shutil.copy2(f, d),
    "cp -p": lambda f, d: subprocess.run(["cp", "-p", f, d], check=True),
    "install": lambda f, d: subprocess.run(["install", "-m", "640", f, d], check=True),
    "shutil.copytree": lambda f, d: shutil.copytree(os.path.dirname(f), os.path.join(d, "code")),
    "tar -x": lambda f, d: subprocess.run(f"tar -C {os.path.dirname(f)} -cf - modeling.py | tar -C {d} -xpf -", shell=True, check=True),
    "cp -a of a folder": lambda f, d: subprocess.run(["cp", "-a", os.path.dirname(f), os.path.join(d, "code")], check=True),
}


@both_modes
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_that_copy_with_attributes_add_to_a_step(mount, made, sound, scratch, program):
    source = scratch / "src/modeling.py"
    source.parent.mkdir()
    trees.write(source, b"print(1)")
    os.chmod(source, 0o640)
    os.utime(source, (1e9, 1e9))
    PROGRAMS[program](source, mount / "1000")
    where = ("code/" if "tree" in program or "folder" in program else "") + "modeling.py"
    for _ in range(2):
        sound({where: b"print(1)"})
        assert look(mount / "1000" / where)[0] == 0o640
        if program not in ("shutil.copy", "install"):
            assert look(mount / "1000" / where)[3] == 10**18
        mount.remount()
