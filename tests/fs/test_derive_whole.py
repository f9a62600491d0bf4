"""derive: files that stay as they are become links or the same chunks, so that none of their bytes is read or written."""

import json
import os
import signal
import subprocess

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from support import trees
from support.fixtures import SOURCE
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
PROGRAM = os.environ.get("CKPTFS") or str(SOURCE / "build/ckptfs")


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.fixture
def dice():
    return np.random.default_rng(33)


@pytest.fixture
def model(dice):
    return {f"model.layers.{i}.weight": dice.standard_normal((1 << 20,), np.float32) for i in range(4)}


@pytest.fixture
def made(mount, commit, model):
    """A model of two shards with their index, and an optimizer that is four times as large."""
    top = mount / "1000"
    top.mkdir()
    names = sorted(model)
    where = {}
    for n, some in enumerate((names[:2], names[2:]), 1):
        file = f"model-{n:05}-of-00002.safetensors"
        save_file({name: model[name] for name in some}, top / file)
        where.update(dict.fromkeys(some, file))
        if n == 1:  # while the step is staged: what comes later is a version of its own, a moment later
            os.setxattr(top / file, "user.note", b"of the first")
    trees.write(top / "model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": where}).encode())
    torch.save({"optim": {name: torch.from_numpy(np.concatenate([array] * 4)) for name, array in model.items()}}, top / "optimizer.pt")
    trees.write(top / "config.json", b"{}")
    commit(top)
    return model


def moved(ckptfs, *args):
    """The bytes that a run of ckptfs has read and written, as the kernel counts them; and what it said."""
    script = "import os, subprocess, sys; p = subprocess.Popen(sys.argv[1:]); os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT); " \
             "print(open(f'/proc/{p.pid}/io').read(), file=sys.stderr); sys.exit(p.wait())"
    run = subprocess.run(["python3", "-c", script, PROGRAM, *map(str, args), "--json"], capture_output=True, text=True, check=True)
    io = dict(line.split(": ") for line in run.stderr.splitlines() if ": " in line)
    return int(io["rchar"]), int(io["wchar"]), json.loads(run.stdout)


def same(top, want):
    found = {}
    for path in top.glob("**/*.safetensors"):
        found.update(load_file(path))
    assert found.keys() == want.keys()
    for name, array in want.items():
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "at rest"])
@pytest.mark.parametrize("packed", [False, True], ids=["hot", "packed"])
def test_files_whose_arrays_all_stay_cost_no_byte(mount, store, made, ckptfs, scratch, packed, mounted):
    if packed:
        ckptfs("cool", mount.path, "1000")
    if not mounted:
        mount.umount()
    at = mount.path if mounted else store
    before = sum(p.stat().st_blocks for p in store.glob("**/*"))
    read, written, said = moved(ckptfs, "derive", at, "1000", "serving", "--only", "model.**")
    assert (said["format"], said["arrays"], said["files"]) == ("safetensors", 4, 3)
    assert said["shared_files"] == 3 and said["shared_bytes"] == said["bytes"] > 16 * MIB
    assert written < MIB, "of 16 MiB"
    assert read < (9 * MIB if packed else MIB), "headers; of packs the chunks that they are in, with half a chunk to spare"
    if not packed:
        grown = {p.stat().st_ino: p.stat().st_blocks for p in store.glob("**/*")}
        assert sum(grown.values()) * 512 - before * 512 < MIB
    ckptfs("get", at, "serving", scratch / "serving")
    assert sorted(p.name for p in (scratch / "serving").iterdir()) == [
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    same(scratch / "serving", made)
    assert ckptfs.json("verify", at)["bad"] == [] and ckptfs.json("sessions", at) == []
    if packed:
        ckptfs("warm", at, "serving")
        assert ckptfs.json("verify", at, "--read-data")["bad"] == []
        ckptfs("get", at, "serving", scratch / "warmed")
        same(scratch / "warmed", made)
    if mounted:
        same(mount / "serving", made)
        mount.remount()
        same(mount / "serving", made)
        assert os.getxattr(mount / "serving/model-00001-of-00002.safetensors", "user.note") == b"of the first"
        assert os.stat(mount / "serving/model-00001-of-00002.safetensors").st_mode == os.stat(mount / "1000/model-00001-of-00002.safetensors").st_mode


@pytest.mark.parametrize("packed", [False, True], ids=["hot", "packed"])
def test_a_change_of_either_step_leaves_the_other(mount, store, made, ckptfs, packed):
    if packed:
        ckptfs("cool", mount.path, "1000")
    ckptfs("derive", mount.path, "1000", "serving", "--only", "model.**")
    index = "model.safetensors.index.json"
    text = (mount / "1000" / index).read_bytes()
    for one, other in ("1000", "serving"), ("serving", "1000"):
        with open(mount / one / index, "r+b") as f:
            f.write(b"!")
        assert (mount / other / index).read_bytes() == text
        with open(mount / one / index, "r+b") as f:
            f.write(text[:1])
    file = "model-00001-of-00002.safetensors"
    data = (mount / "1000" / file).read_bytes()
    os.chmod(mount / "serving" / file, 0o600)
    with open(mount / "1000" / file, "r+b") as f:
        f.seek(5 * MIB)
        f.write(b"\xff" * 100)
    assert (mount / "serving" / file).read_bytes() == data
    with open(mount / "serving" / file, "r+b") as f:
        f.seek(6 * MIB)
        f.write(b"\x00" * 100)
    assert (mount / "1000" / file).read_bytes() == data[:5 * MIB] + b"\xff" * 100 + data[5 * MIB + 100:]
    assert (mount / "serving" / file).read_bytes() == data[:6 * MIB] + bytes(100) + data[6 * MIB + 100:]


@pytest.mark.parametrize("packed", [False, True], ids=["hot", "packed"])
def test_the_new_step_has_its_bytes_when_the_first_is_gone_for_good(mount, store, made, ckptfs, packed):
    if packed:
        ckptfs("cool", mount.path, "1000")
    ckptfs("derive", mount.path, "1000", "serving", "--only", "model.**")
    ckptfs("rm", "--now", "--yes", mount.path, "1000")
    wait_until(lambda: os.listdir(store / "trash") == [], what="the end of its files")
    ckptfs("gc", "--grace", "0s", mount.path)
    mount.remount()
    same(mount / "serving", made)
    assert mount.listing() == ["serving"] and ckptfs.json("verify", mount.path)["bad"] == []


def test_what_changes_is_written_beside_what_stays(mount, made, ckptfs, scratch):
    """Half of the optimizer changes its file; the model does not."""
    said = ckptfs.json("derive", mount.path, "1000", "some", "--not", "optim.model.layers.0.**")
    assert said["format"] is None and said["arrays"] == 7 and said["shared_files"] == 3
    same(mount / "some", made)
    found = torch.load(mount / "some/model.pt", weights_only=True)
    assert found.keys() == {f"optim.{name}" for name in sorted(made)[1:]}
    said = ckptfs.json("derive", mount.path, "1000", "all", "-f", "safetensors")
    assert said["shared_files"] == 3 and said["format"] == "safetensors"
    assert sorted(os.listdir(mount / "all")) == ["derived", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    assert len(load_file(mount / "all/derived/model.safetensors")) == 4
    assert len(ckptfs.json("arrays", mount.path, "all")) == 8


def test_nothing_stays_that_is_cast_split_or_in_part_left_out(mount, made, ckptfs):
    for name, options in {"cast": ["--dtype", "bfloat16"], "split": ["--shard-bytes", "4MiB"], "part": ["--not", "model.layers.3.**"], "other": ["-f", "npy"]}.items():
        said = ckptfs.json("derive", mount.path, "1000", name, "--only", "model.**", *options)
        assert said["shared_files"] == said["shared_bytes"] == 0, name
    assert ckptfs.json("derive", mount.path, "1000", "same", "--only", "model.**", "--dtype", "float32")["shared_files"] == 3


def test_a_directory_of_one_checkpoint_stays_with_all_that_is_in_it(mount, made, ckptfs, commit):
    ckptfs("derive", mount.path, "1000", "dcp", "--only", "model.**", "-f", "dcp")
    top = mount / "2000"
    top.mkdir()
    for path in (mount / "dcp").iterdir():
        put(top / "state" / path.name, path.read_bytes())
    put(top / "state/tokenizer.json", b"{}")
    put(top / "readme", b"words")
    commit(top)
    said = ckptfs.json("derive", mount.path, "2000", "whole")
    assert said["shared_bytes"] == said["bytes"] and said["format"] == "dcp"
    want = {p: d for p, d in trees.files(top).items() if p.startswith("state/")}
    assert trees.files(mount / "whole") == want and "state/tokenizer.json" in want
    said = ckptfs.json("derive", mount.path, "2000", "half", "--not", "model.layers.1.**")
    assert said["shared_files"] == 0 and said["format"] == "dcp" and said["arrays"] == 3


def test_hard_links_of_a_step_stay_files_of_their_own(mount, commit, ckptfs, dice):
    top = mount / "1000"
    top.mkdir()
    np.save(top / "a.npy", dice.standard_normal(1000))
    os.link(top / "a.npy", top / "b.npy")
    commit(top)
    ckptfs("derive", mount.path, "1000", "2000")
    assert trees.files(mount / "2000") == trees.files(top)
    with open(mount / "2000/a.npy", "r+b") as f:
        f.seek(500)
        f.write(b"NEW")
    assert trees.files(mount / "1000")["a.npy"] == trees.files(mount / "1000")["b.npy"] == trees.files(mount / "2000")["b.npy"]


@pytest.mark.parametrize("packed", [False, True], ids=["hot", "packed"])
def test_killed_in_the_middle_it_leaves_no_step(mount, store, made, ckptfs, packed):
    """Stopped while it writes what does not stay, when links and the rest of the files are there already."""
    if packed:
        ckptfs("cool", mount.path, "1000")
    mount.umount()
    p = subprocess.Popen([PROGRAM, "derive", store, "1000", "2000", "--dtype", "float32", "-f", "safetensors"])
    wait_until(lambda: list(store.glob("sessions/*/derived/*")), what="the file that is written")
    p.send_signal(signal.SIGKILL)
    p.wait()
    assert [row["name"] for row in ckptfs.json("ls", store)] == ["1000"]
    mount.start()
    assert mount.listing() == ["1000"]
    same(mount / "1000", made)
    ckptfs("abort", "--yes", mount.path, "2000")
    ckptfs("derive", mount.path, "1000", "2000", "--only", "model.**")
    same(mount / "2000", made)
    assert ckptfs.json("verify", mount.path)["bad"] == []


# --- Two steps --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tuned(mount, commit, made, dice):
    """Another step: a layer of the model that was trained further, and two adapters in files of their own."""
    top = mount / "finetuned"
    top.mkdir()
    arrays = {"model.layers.3.weight": made["model.layers.3.weight"] + 1, "model.head": dice.standard_normal((1 << 19,), np.float32)}
    save_file(arrays, top / "model-00001-of-00002.safetensors")
    adapters = {"adapter.a": dice.standard_normal(1 << 20), "adapter.b": dice.standard_normal(1 << 20)}
    save_file(adapters, top / "adapter_model.safetensors")
    commit(top)
    return {**arrays, **adapters}


def test_merge_adds_what_the_first_step_does_not_give(mount, made, tuned, ckptfs):
    read, written, said = moved(ckptfs, "derive", mount.path, "1000", "tuned", "--only", "model.**", "--merge", "finetuned")
    assert (said["arrays"], said["format"]) == (7, "safetensors")
    assert said["shared_files"] == 4, "two shards, their index and the adapters"
    same(mount / "tuned", {**tuned, **made})
    assert written < 4 * MIB, "one file of the other step is written anew, without the layer that the first gives"
    assert read < 5 * MIB, "64 MiB of the optimizer are not"


def test_the_first_step_wins_and_the_other_gives_the_rest(mount, made, tuned, ckptfs):
    said = ckptfs.json("derive", mount.path, "finetuned", "tuned", "--only", "model.**", "--merge", "1000", "-f", "safetensors")
    assert said["arrays"] == 2 + 3 + 4
    found = {}
    for path in (mount / "tuned").glob("**/*.safetensors"):
        found.update(load_file(path))
    assert {k: v.tobytes() for k, v in found.items() if k.startswith("model")} == \
        {k: v.tobytes() for k, v in {**made, **tuned}.items() if k.startswith("model")}


def test_files_of_one_path_in_both_steps_stay_apart(mount, made, ckptfs, commit, dice):
    for step, name in ("2000", "a"), ("3000", "b"):
        top = mount / step
        top.mkdir()
        save_file({name: dice.standard_normal(1000)}, top / "model.safetensors")
        commit(top)
    said = ckptfs.json("derive", mount.path, "2000", "both", "--merge", "3000")
    assert said["shared_files"] == 2 and sorted(trees.files(mount / "both")) == ["3000/model.safetensors", "model.safetensors"]
    assert (mount / "both/3000/model.safetensors").read_bytes() == (mount / "3000/model.safetensors").read_bytes()
    said = ckptfs.json("derive", mount.path, "2000", "one", "--merge", "3000", "--dtype", "float32")
    assert said["files"] == 1 and load_file(mount / "one/model.safetensors").keys() == {"a", "b"}


def test_renamed_arrays_are_written_anew_and_others_stay(mount, made, tuned, ckptfs, scratch):
    (scratch / "names.json").write_text(json.dumps({"model.layers.3.weight": "model.head", "adapter.a": "adapter.z"}))
    said = ckptfs.json("derive", mount.path, "1000", "named", "--only", "model.**", "--rename", scratch / "names.json")
    assert said["shared_files"] == 0, "the shards are one model with their index"
    found = load_file(mount / "named/model.safetensors")
    assert found.keys() == {*(f"model.layers.{i}.weight" for i in range(3)), "model.head"}
    assert found["model.head"].tobytes() == made["model.layers.3.weight"].tobytes()
    said = ckptfs.json("derive", mount.path, "finetuned", "half", "--rename", scratch / "names.json", "--not", "model.layers.**")
    assert {r["name"] for r in ckptfs.json("arrays", mount.path, "half")} == {"model.head", "adapter.z", "adapter.b"}
    said = ckptfs.json("derive", mount.path, "1000", "merged", "--only", "model.**", "--merge", "finetuned", "--rename", scratch / "names.json")
    found = {}
    for path in (mount / "merged").glob("**/*.safetensors"):
        found.update(load_file(path))
    assert found.keys() == {*(f"model.layers.{i}.weight" for i in range(3)), "model.head", "adapter.z", "adapter.b"}
    assert found["model.head"].tobytes() == made["model.layers.3.weight"].tobytes(), "the first step gives this name now"
    said = ckptfs.json("derive", mount.path, "1000", "in-front", "--only", "model.**", "--prefix", "x.")
    assert said["shared_files"] == 0 and {r["name"] for r in ckptfs.json("arrays", mount.path, "in-front")} == {f"x.{name}" for name in made}


def test_merge_of_what_is_not_there_makes_no_step(mount, made, ckptfs):
    for words in (["--merge", "nosuch"], ["--only", "nosuch", "--merge", "1000"]):
        refused = ckptfs("derive", mount.path, "1000", "x", *words, check=False)
        assert refused.returncode == 1 and "nosuch" in refused.stderr + " ".join(words)
    assert mount.listing() == ["1000"] and ckptfs.json("sessions", mount.path) == []
