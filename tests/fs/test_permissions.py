"""Permissions as the kernel would judge them on the disk: three ordinary users, every mode, in a mount with allow_other; and all
of the POSIX suite for a mount of an ordinary user's own."""

import json
import os
import shutil
import subprocess

import pytest

from support import trees
from support.agent import PYTHON
from support.fixtures import SOURCE, SLOW, needs_root, scratch_folder
from support.mounting import Mount
from support.posix import Places, names_of

pytestmark = [pytest.mark.timeout(120), needs_root]

OTHER, NOBODY = 4003, 65534  # fusermount3 asks who the user is


def in_a_mount(places, place):
    with places.world() as world:
        mount = places.mounted(world, place, options=["allow_other"])
        folder = mount / ("plain" if "plain" in place else "1000")
        folder.mkdir()
        if "committed" not in place:
            return places.cases(folder)
        places.cases(folder, "--prepare")
        trees.write(folder / ".finalize", b"")
        assert mount.listing() == ["1000"]
        said = places.cases(folder, "--act")
        mount.remount()
        again = places.cases(folder, "--act")
        assert said == again
        return again


PLACES = dict.fromkeys(["staged passthrough", "plain passthrough", "staged daemon", "plain daemon", "committed passthrough", "committed daemon"], in_a_mount)


@pytest.fixture(scope="module")
def places(ckptfs):
    with scratch_folder() as scratch:
        yield Places(ckptfs, scratch, PLACES, ["--users"])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", names_of("users"))
def test_a_user_may_do_what_the_disk_would_allow(places, place, case):
    if "committed" in place and case not in places.said(place):
        return  # it changes files, which nobody may there
    places.compare(place, case)


# --- The mount of an ordinary user ------------------------------------------------------------------------------------


class User:
    """An ordinary user with a home, a copy of the program and one of the cases, which may lie where others cannot look."""

    def __init__(self, world, uid=NOBODY):
        self.home = world.scratch / "user"
        self.home.mkdir()
        self._program = shutil.copy2(world.program.path, self.home / "ckptfs")
        self.cases = shutil.copytree(SOURCE / "tests/fs/cases", self.home / "cases", ignore=shutil.ignore_patterns("__pycache__"))
        self.mnt = self.home / "mnt"
        self.mnt.mkdir()
        for path in (self.home, self._program, self.mnt):
            os.chown(path, uid, uid)
        self._as = {"user": uid, "group": uid, "extra_groups": [], "cwd": "/", "env": dict(os.environ, HOME=str(self.home), PYTHONDONTWRITEBYTECODE="1",
                                                                                      CKPT_CASE_SECONDS=str(20 * SLOW))}
        device = os.stat("/dev/fuse").st_mode & 0o777
        os.chmod("/dev/fuse", 0o666)  # udev gives it to everybody; there may be none here
        world.callback(os.chmod, "/dev/fuse", device)
        world.callback(subprocess.run, ["umount", "-l", self.mnt], check=False, capture_output=True)

    def run(self, *command):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **self._as)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def ckptfs(self, *words):
        return self.run(self._program, *words)

    def say(self, folder):
        self.run("mkdir", folder)
        lines = self.run(PYTHON, self.cases / "run.py", folder).splitlines()
        return {one["case"]: one["said"] for one in map(json.loads, lines)}


def on_the_users_disk(places, place):
    with places.world() as world:
        user = User(world)
        said = user.say(user.home / "disk")
        shutil.rmtree(user.home)
        return said


def in_the_users_mount(places, place):
    with places.world() as world:
        user = User(world)
        user.ckptfs("mount", user.home / "store", user.mnt)
        said = user.say(user.mnt / ("1000" if "staged" in place else "plain"))
        user.ckptfs("umount", "--force", user.mnt)
        shutil.rmtree(user.home)
        return said


# It has no passthrough: the kernel hands files to root's daemons only.
USERS_PLACES = dict.fromkeys(["staged user daemon", "plain user daemon"], in_the_users_mount)


@pytest.fixture(scope="module")
def users_places(ckptfs):
    with scratch_folder() as scratch:
        places = Places(ckptfs, scratch, USERS_PLACES | {"disk": on_the_users_disk})
        places.strict = False
        yield places


@pytest.mark.parametrize("place", USERS_PLACES)
@pytest.mark.parametrize("case", names_of("posix"))
def test_a_users_own_mount_answers_him_as_the_disk_does(users_places, place, case):
    users_places.compare(place, case)


# --- What is ours -----------------------------------------------------------------------------------------------------


MODES = {".ckptfs": 0o755, "policy.json": 0o644}  # what only who mounts writes


def test_control_files_are_read_by_all_and_written_by_no_other(world, store, agent, commit):
    mount = Mount.new(world, store, options=["allow_other"])
    (mount / "1").mkdir()
    commit(mount / "1")
    other = agent(uid=OTHER)
    found = []
    for at, _, names in os.walk(mount / ".ckptfs"):
        assert os.stat(at).st_mode & 0o777 == MODES.get(os.path.basename(at), 0o555), at
        for name in names:
            path = os.path.join(at, name)
            found.append(name)
            assert os.stat(path).st_mode & 0o777 == MODES.get(name, 0o444), path
            assert other.run("len(open(path, 'rb').read())", path=path) >= 0
            for code in ("os.open(path, os.O_WRONLY)", "os.open(path, os.O_RDWR)", "os.truncate(path, 0)", "os.unlink(path)", "os.chmod(path, 0o666)",
                         "os.rename(path, path + 'x')", "os.chown(path, 4003, 4003)"):
                assert other.errno_of(code) in ("EACCES", "EPERM"), f"{code} {path}"
    assert {"status.json", "errors"} <= set(found)
    assert other.errno_of("os.mkdir(path)", path=str(mount / ".ckptfs/new")) in ("EACCES", "EPERM")
