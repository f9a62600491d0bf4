"""A directory that has the name of a step and no array data: it becomes a plain folder, and a step again by its first arrays."""

import os
import time

import pytest

from support import trees
from support.fixtures import both_modes
from support.mounting import wait_until
from support.quiet import ARRAY, SAVE, UNIT, listed, neighbour, options, save, stays_hidden  # noqa: F401

pytestmark = pytest.mark.timeout(120)


def is_plain(mount, ckptfs, store, name):
    return name in mount.listing() and ckptfs.json("sessions", store) == [] and name not in [s["name"] for s in ckptfs.json("ls", store)]


@both_modes
def test_without_array_data_it_is_no_step(mount, neighbour, agent, save, ckptfs, store):
    writer = agent()
    began = time.monotonic()
    save(writer, "step_2", ["a.json", "b.json"])
    made = trees.files(mount / "step_2")
    stays_hidden(mount, "step_2", 9)
    listed(mount, "step_2")
    assert time.monotonic() - began >= 30 * UNIT
    assert is_plain(mount, ckptfs, store, "step_2") and trees.files(mount / "step_2") == made
    mount.remount()
    assert is_plain(mount, ckptfs, store, "step_2") and trees.files(mount / "step_2") == made


@pytest.mark.parametrize("end", ["exit 0", "exit 1", "kill"])
@pytest.mark.parametrize("files", [["a.json", "0.png"], []], ids=["files", "empty"])
def test_without_array_data_it_becomes_plain_soon_after_its_maker_s_end(mount, agent, save, ckptfs, store, files, end):
    writer = agent()
    (mount / "samples").mkdir()
    save(writer, "samples/epoch_5", files)
    time.sleep(4 * UNIT)
    assert os.listdir(mount / "samples") == []
    began = time.monotonic()
    if end == "kill":
        writer.kill()
        writer.wait_gone(30)
    else:
        writer.exit(int(end[-1]))
    if not files and end != "exit 0":  # a save that was interrupted before its first file
        time.sleep(4 * UNIT)
        assert os.listdir(mount / "samples") == [] and (mount / "samples/epoch_5").is_dir()
        return
    wait_until(lambda: os.listdir(mount / "samples") == ["epoch_5"], 30)
    assert time.monotonic() - began < 25 * UNIT
    assert ckptfs.json("ls", store) == [] and sorted(os.listdir(mount / "samples/epoch_5")) == sorted(files)


@pytest.mark.parametrize("file", ["trainer_state.json", ".metadata"])
def test_a_file_that_only_checkpoints_have_keeps_it_a_step(mount, agent, save, file):
    writer = agent()
    save(writer, "step_2", ["a.json", file])
    writer.exit(0)
    stays_hidden(mount, "step_2", 6)


def test_what_is_open_goes_on_when_it_becomes_plain(mount, agent, ckptfs, store):
    writer = agent()
    path = mount / "step_2"
    path.mkdir()
    writer.run("f = open(path, 'w'); g = open(path + '.other', 'w+'); f.write('one'); f.flush()", path=str(path / "notes.txt"))
    there = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    listed(mount, "step_2")
    writer.run("f.write('two'); f.close(); g.write('three'); g.flush(); g.seek(0); assert g.read() == 'three'; g.close()")
    trees.write(path / "more.txt", b"more")
    assert sorted(os.listdir(there)) == ["more.txt", "notes.txt", "notes.txt.other"]
    os.close(there)
    assert (path / "notes.txt").read_bytes() == b"onetwo"
    assert is_plain(mount, ckptfs, store, "step_2")


# --- The first arrays -------------------------------------------------------------------------------------------------


@pytest.fixture
def samples(mount, agent, save):
    """A directory `samples/epoch_5` of texts, which is a plain folder by now."""
    writer = agent()
    (mount / "samples").mkdir()
    save(writer, "samples/epoch_5", ["a.json", "0.png"])
    writer.exit(0)
    wait_until(lambda: os.listdir(mount / "samples") == ["epoch_5"], 30)
    return mount / "samples/epoch_5"


WAYS = {
    "made": "write(path + '/model.safetensors', array)",
    "made below": "os.mkdir(path + '/sub'); write(path + '/sub/model.safetensors', array)",
    "renamed": "write(path + '/model.tmp', array); os.rename(path + '/model.tmp', path + '/model.safetensors')",
    "renamed from outside": "write(path + '/../model', array); os.rename(path + '/../model', path + '/model.safetensors')",
}


@both_modes
@pytest.mark.parametrize("way", WAYS)
def test_the_first_array_file_makes_a_staged_step_of_it_again(mount, world, samples, agent, ckptfs, store, way):
    writer = agent()
    text = os.open(samples / "a.json", os.O_WRONLY | os.O_APPEND)
    there = os.open(samples, os.O_RDONLY | os.O_DIRECTORY)
    writer.run(SAVE + WAYS[way], path=str(samples), names=[], array=ARRAY)
    assert os.listdir(mount / "samples") == []
    os.write(text, b"more")
    os.close(text)
    assert {"a.json", "0.png"} < set(os.listdir(there))
    os.close(there)
    wait_until(lambda: os.listdir(mount / "samples") == ["epoch_5"], 30)
    made = trees.files(samples)
    assert made["a.json"] == b"{}more" and ARRAY in made.values() and "0.png" in made
    assert ckptfs.json("info", store, "samples/epoch_5")["event"] == "quiet"
    mount.remount()
    assert trees.files(samples) == made


def test_other_files_leave_it_plain(mount, samples, agent, save):
    writer = agent()
    save(writer, "samples/epoch_5", ["b.json", "1.png", "notes.txt"])
    (samples / "sub").mkdir()
    assert os.listdir(mount / "samples") == ["epoch_5"]
    trees.write(mount / "samples/model.safetensors", ARRAY)  # beside it
    assert sorted(os.listdir(mount / "samples")) == ["epoch_5", "model.safetensors"]


def test_a_save_into_it_that_is_killed_is_never_listed(mount, world, samples, agent, ckptfs, store):
    writer = agent()
    writer.run(SAVE + "fd = os.open(path + '/model.safetensors', os.O_CREAT | os.O_WRONLY); os.write(fd, array[:1000])",
               path=str(samples), names=[], array=ARRAY)
    writer.kill()
    writer.wait_gone(30)
    until = time.monotonic() + 9 * UNIT
    while time.monotonic() < until:
        assert os.listdir(mount / "samples") == []
    assert (samples / "a.json").read_bytes() == b"{}"
    ckptfs("abort", store, "samples/epoch_5", "--yes")


def test_it_is_what_it_was_after_the_end_of_its_daemon(mount, samples, agent):
    """Plain before the first arrays, and staged after them: nobody looks for the moment between."""
    mount.remount()
    assert os.listdir(mount / "samples") == ["epoch_5"]
    writer = agent()
    writer.run(SAVE, path=str(samples), names=["model.safetensors"], array=ARRAY)
    assert os.listdir(mount / "samples") == []
    mount.kill9()
    mount.start()
    assert os.listdir(mount / "samples") == [] and sorted(os.listdir(samples)) == ["0.png", "a.json", "model.safetensors"]
    trees.write(samples / ".finalize", b"")
    assert os.listdir(mount / "samples") == ["epoch_5"]
