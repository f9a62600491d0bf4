"""Changes of a committed step for which it is reopened: what the suites of that share. Who uses a fixture imports it."""

import os
import shutil
import subprocess

import pytest

from support import trees

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
