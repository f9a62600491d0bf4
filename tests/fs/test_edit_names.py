"""Names in a committed step: renames, links and moves are a version of it, seen and durable when the call returns; the step stays listed."""

import os
import shutil
import subprocess
import time

import pytest

from support import trees
from support.fixtures import both_modes
from support.mounting import errno_name, wait_until

pytestmark = pytest.mark.timeout(60)

W0, W1 = "params/layer_0/w0.bin", "params/layer_1/w1.bin"
ARRAY = b"\x93NUMPY\x01\x00" + b"a" * 5000


@pytest.fixture(params=["just committed", "read from the store"])
def base(request, mount, commit):
    """Committed steps 900 and 1000; of 1000 (path, {path in it: bytes})."""
    for name in ("900", "1000"):
        (mount / name).mkdir()
        files = trees.fill(mount / name, seed=name, size=200_000, files=3)
        trees.write(mount / name / "array.npy", ARRAY)
        files["array.npy"] = ARRAY
        commit(mount / name)
    (mount / "plain").mkdir()
    if request.param == "read from the store":
        mount.remount()
    return mount / "1000", files


@pytest.fixture
def is_so(mount, base, ckptfs, store):
    """The step is listed with these files and no others, also after a kill -9; and verify agrees."""
    def check(files):
        assert mount.listing() == ["1000", "900", "plain"] and trees.files(mount / "1000") == files
        mount.kill9()
        mount.start()
        assert mount.listing() == ["1000", "900", "plain"] and trees.files(mount / "1000") == files
        mount.remount()
        assert trees.files(mount / "1000") == files
        assert ckptfs.json("verify", store)["bad"] == [] and mount.errors() == []
    return check


def moved(files, old, new):
    return {new + p[len(old):] if p == old or p.startswith(old + "/") else p: data for p, data in files.items() if p != new}


def rename(step, files, old, new):
    held, number = (open(step / old, "rb") if old in files else None), os.stat(step / old).st_ino
    os.rename(step / old, step / new)
    assert os.stat(step / new).st_ino == number and not (step / old).exists()
    if held:
        assert held.read() == files[old]
        held.close()
    return moved(files, old, new)


RENAMES = {
    "a file": lambda s, f: rename(s, f, W0, "params/other.bin"),
    "a file with arrays": lambda s, f: rename(s, f, "array.npy", "params/array.npy"),
    "an empty file": lambda s, f: rename(s, f, "empty", "params/empty"),
    "a file over another": lambda s, f: rename(s, f, W1, W0),
    "a file over another without arrays": lambda s, f: rename(s, f, W0, "config.json"),
    "there and back": lambda s, f: rename(s, rename(s, f, W0, "x"), "x", W0),
    "round": lambda s, f: rename(s, rename(s, rename(s, f, "config.json", "x"), W0, "config.json"), "x", W0),
}


@both_modes
@pytest.mark.parametrize("what", RENAMES)
def test_a_rename_within_is_a_version(base, is_so, what):
    is_so(RENAMES[what](*base))


@both_modes
def test_a_folder_is_renamed_with_all_in_it(mount, base, is_so):
    step, files = base
    os.unlink(step / "first")  # it would lead nowhere
    files = rename(step, files, "params/layer_0", "old")
    os.mkdir(step / "params/layer_0")
    trees.write(step / W0, b"anew")
    trees.write(step / "old/more", b"more")
    files |= {W0: b"anew", "old/more": b"more"}
    assert trees.files(step) == files
    with pytest.raises(OSError) as e:
        os.rename(step / "old", step / "params")
    assert errno_name(e.value) == "ENOTEMPTY"
    os.mkdir(step / "void")
    files = rename(step, files, "old", "void")
    is_so(files)


def test_a_file_made_under_a_name_that_was_given_away(mount, base, is_so, ckptfs, store):
    step, files = base
    files = rename(step, files, W0, "x")
    trees.write(step / W0, b"anew")
    os.unlink(step / "config.json")
    wait_until(lambda: ckptfs.json("info", store, "1000")["version"] == 4)
    trees.write(step / "config.json", b"{}")
    is_so(files | {W0: b"anew", "config.json": b"{}"})


WRITERS = {
    "os.replace": lambda f: (trees.write(f.with_name("tmp"), b"new\n"), os.replace(f.with_name("tmp"), f)),
    "sed -i": lambda f: subprocess.run(["sed", "-i", "s/.*/new/;q", f], check=True),
    "a backup as vim's": lambda f: (os.rename(f, f"{f}~"), trees.write(f, b"new\n"), os.unlink(f"{f}~")),
    "mv": lambda f: (trees.write(f.parent.parent / "plain/f", b"new\n"), subprocess.run(["mv", f.parent.parent / "plain/f", f], check=True)),
}


@both_modes
@pytest.mark.parametrize("writer", WRITERS)
def test_writers_of_whole_files_edit(base, is_so, writer, ckptfs, store):
    step, files = base
    WRITERS[writer](step / "config.json")
    if writer == "a backup as vim's":
        wait_until(lambda: ckptfs.json("info", store, "1000")["version"] == 3)  # the backup is in none
    is_so(files | {"config.json": b"new\n"})


def test_array_data_that_is_renamed_over_or_over_another_is_a_save_over_it(mount, base):
    step, files = base
    for old, new in (("array.npy", W0), (W1, W0)):
        os.rename(step / old, step / new)
        files = moved(files, old, new)
        assert mount.listing() == ["900", "plain"] and trees.files(step) == files
        trees.write(step / ".finalize", b"")
        assert mount.listing() == ["1000", "900", "plain"]


@both_modes
@pytest.mark.parametrize("from_", ["plain", "staged", "900"])
@pytest.mark.parametrize("over", [False, True], ids=["new", "over"])
def test_a_file_moves_in(mount, base, is_so, from_, over):
    step, files = base
    if from_ == "staged":
        (mount / "2000").mkdir()
    old, new = mount / {"plain": "plain/f", "staged": "2000/f", "900": f"900/{W0}"}[from_], "config.json" if over else "params/f"
    if from_ != "900":
        trees.write(old, b"moved")
    data = old.read_bytes()
    with open(old, "rb") as f:
        os.rename(old, step / new)
        assert f.read() == data
    assert not old.exists() and (step / new).read_bytes() == data
    if from_ == "staged":
        (mount / "2000").rmdir()
    elif from_ == "900":
        wait_until(lambda: W0 not in trees.files(mount / "900"))
    is_so(files | {new: data})


def test_arrays_moved_over_a_file_are_a_save_over_it(mount, base):
    step, files = base
    trees.write(mount / "plain/f", ARRAY)
    os.rename(mount / "plain/f", step / "config.json")
    assert mount.listing() == ["900", "plain"] and trees.files(step) == files | {"config.json": ARRAY}


@pytest.mark.parametrize("from_", ["plain", "1000"])
def test_a_link_takes_a_name_that_was_removed_just_now(mount, base, is_so, from_):
    step, files = base
    trees.write(mount / "plain/y", b"plain")
    os.unlink(step / "config.json")
    source = mount / "plain/y" if from_ == "plain" else step / W0
    os.link(source, step / "config.json")
    is_so(files | {"config.json": b"plain" if from_ == "plain" else files[W0]})


def test_what_was_moved_out_just_now_is_linked_back(mount, base, is_so):
    step, files = base
    for n in range(5):
        os.rename(step / "config.json", mount / "plain/z")
        os.link(mount / "plain/z", step / "config.json")
        os.unlink(mount / "plain/z")
    is_so(files)


@both_modes
@pytest.mark.parametrize("from_", ["plain/f", "900/array.npy", "1000/array.npy", "1000/empty"])
def test_a_file_is_linked_in(mount, base, is_so, from_):
    step, files = base
    if from_ == "plain/f":
        trees.write(mount / from_, b"linked")
    data = (mount / from_).read_bytes()
    os.link(mount / from_, step / "params/f")
    assert (os.stat(mount / from_).st_ino == os.stat(step / "params/f").st_ino) == from_.startswith("1000/")
    if from_ == "plain/f":
        trees.write(mount / from_, b"changed")
    is_so(files | {"params/f": data})
    os.unlink(step / "params/f")
    wait_until(lambda: os.listdir(step / "params") != [])
    with pytest.raises(FileExistsError):
        os.link(mount / from_, step / "config.json")


@both_modes
@pytest.mark.parametrize("to", ["plain/new", "plain/there", "2000/new"])
@pytest.mark.parametrize("what", [W0, "empty", "array.npy"])
def test_a_file_moves_out_and_is_a_file_of_its_own(mount, base, is_so, to, what, ckptfs, store):
    step, files = base
    if to == "2000/new":
        (mount / "2000").mkdir()
    trees.write(mount / "plain/there", b"there")
    before = ckptfs.json("info", store, "1000")["version"]
    os.rename(step / what, mount / to)
    assert not (step / what).exists() and (mount / to).read_bytes() == files[what] and "1000" in mount.listing()
    with open(mount / to, "ab") as f:
        f.write(b"changed")
    assert (mount / to).read_bytes() == files[what] + b"changed"
    wait_until(lambda: ckptfs.json("info", store, "1000")["version"] == before + 1)
    if to == "2000/new":
        shutil.rmtree(mount / "2000")
    is_so({p: data for p, data in files.items() if p != what})


@both_modes
@pytest.mark.parametrize("wait", [0, 1.5])
def test_what_was_moved_out_is_appended_to_while_others_read_the_old(mount, base, is_so, wait):
    """The kernel knows the new name by the old node, and looks again once only."""
    step, files = base
    for n, what in enumerate([W0, "array.npy", W1]):
        with open(step / what, "rb") as held:
            os.rename(step / what, mount / f"plain/{n}")
            time.sleep(wait)
            with open(mount / f"plain/{n}", "ab") as f:
                f.write(b"changed")
            assert held.read() == files[what] and (mount / f"plain/{n}").read_bytes() == files.pop(what) + b"changed"
            assert "1000" in mount.listing()
    wait_until(lambda: not (step / W1).exists())
    time.sleep(1.5)
    is_so(files)


def test_a_crash_after_a_move_out_loses_nothing(mount, base, is_so):
    step, files = base
    os.rename(step / W0, mount / "plain/f")
    mount.kill9()
    mount.start()
    assert (mount / "plain/f").read_bytes() == files[W0] and trees.files(step) == files
    is_so(files)


def test_folders_do_not_move_in_or_out_by_a_rename(mount, base, is_so):
    step, files = base
    for old, new in ((step / "params", mount / "plain/params"), (mount / "plain", step / "plain")):
        with pytest.raises(OSError) as e:
            os.rename(old, new)
        assert errno_name(e.value) == "EXDEV"
    is_so(files)
