"""check: what is wrong with the arrays of a step, found in headers, in elements, and next to the step before."""

import json
import shutil

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from support import trees

pytestmark = pytest.mark.timeout(120)


def model(seed, **other):
    dice = np.random.default_rng(seed)
    arrays = {f"layers.{i}.weight": dice.standard_normal((50, 60), np.float32) for i in range(4)}
    arrays["norm"] = dice.standard_normal(40).astype(ml_dtypes.bfloat16)
    arrays["steps"] = np.array([seed])
    return {**arrays, **other}


@pytest.fixture
def save(mount, commit):
    def save(number, write):
        top = mount / str(number)
        top.mkdir()
        write(top)
        commit(top)

    return save


def kinds(answer):
    return sorted((f["kind"], f["name"] or f["file"]) for f in answer["findings"])


def test_a_run_without_trouble_has_no_finding(mount, save, ckptfs):
    for n in range(100, 800, 100):
        save(n, lambda top, n=n: save_file(model(n), top / "model.safetensors"))
    for n in range(100, 800, 100):
        found = ckptfs.json("check", mount.path, n, "--read-data")
        assert (found["healthy"], found["arrays"], found["read"], found["findings"]) == (True, 6, 6, [])
        assert found["before"] == (None if n == 100 else str(n - 100))


def test_what_goes_wrong_in_a_step_is_found_there(mount, store, save, ckptfs):
    save(100, lambda top: save_file(model(1, gone=np.ones(3)), top / "model.safetensors"))
    bad = model(2)
    bad["layers.0.weight"] = model(1)["layers.0.weight"]
    bad["layers.1.weight"][3, 4] = np.nan
    bad["layers.2.weight"] = bad["layers.2.weight"][:20]
    bad["layers.3.weight"] = bad["layers.3.weight"].astype(np.float16)
    bad["norm"][7] = np.inf
    bad["new"] = np.zeros((4, 4), np.float64)
    save(200, lambda top: save_file(bad, top / "model.safetensors"))
    headers = [("dtype", "layers.3.weight"), ("gone", "gone"), ("shape", "layers.2.weight")]
    elements = [("inf", "norm"), ("nan", "layers.1.weight"), ("same", "layers.0.weight"), ("zero", "new")]

    def check(where):
        found = ckptfs.json("check", where, "200")
        assert (found["healthy"], kinds(found), found["read"]) == (True, headers, 0)
        found = ckptfs.json("check", where, "200", "--read-data", check=False)
        assert (found["healthy"], kinds(found), found["count"]) == (False, sorted(headers + elements), 7)
        assert next(f["what"] for f in found["findings"] if f["kind"] == "nan") == "1 of 3000 elements are NaN"
        assert [f["kind"] for f in found["findings"] if f["trouble"]] == ["nan"]

    check(mount.path)
    said = ckptfs("check", mount.path, "200", "--read-data", check=False)
    assert "model.safetensors:layers.1.weight" in said.stdout and "7 findings: not healthy" in said.stderr
    same = ckptfs.json("check", mount.path, "200", "--read-data", "--against", "200", check=False)
    assert kinds(same) == [x for x in sorted(elements) if x[0] != "same"]
    mount.umount()
    ckptfs("cool", store, "200")
    ckptfs("cool", store, "100")
    check(store)


def test_the_step_before_is_that_of_the_number_before(mount, save, ckptfs):
    for n in 300, 100, 200:
        save(n, lambda top, n=n: save_file({"x": np.arange(n)}, top / "model.safetensors"))
    found = ckptfs.json("check", mount.path, "300")
    assert found["before"] == "200" and found["findings"][0]["what"] == "[300], and [200] in the step before"


def test_trees_with_a_number_are_those_of_the_step_before(mount, save, ckptfs):
    for n in 100, 200:

        def write(top, n=n):
            (top / f"global_step{n}").mkdir()
            save_file(model(n, shape=np.zeros(n)), top / f"global_step{n}/model.safetensors")

        save(n, write)
    assert kinds(ckptfs.json("check", mount.path, "200")) == [("shape", "shape")]


def test_numbers_in_trees_that_are_not_the_step_s(mount, save, ckptfs):
    """The size of a world, and hexadecimal names that begin with digits."""
    for n in 1, 2:

        def write(top, n=n):
            for rank in range(2):
                save_file({"data": np.full(3 + rank, n)}, top / f"rank-{rank}-of-1.safetensors")
                save_file({"data": np.full(3 + rank, n)}, top / f"layer-{rank + 1}.safetensors")
            (top / f"ocdbt.process_0{'86' if n == 1 else '20'}aad1dbbf6a4fd48f738dab7614749").mkdir()
            trees.write(top / f"ocdbt.process_0{'86' if n == 1 else '20'}aad1dbbf6a4fd48f738dab7614749/a", b"a")

        save(n, write)
    assert ckptfs.json("check", mount.path, "2")["findings"] == []
    rows = ckptfs.json("diff", "--arrays", mount.path, "1", "2", check=False)["arrays"]
    assert (rows["added"], rows["removed"], len(rows["changed"])) == ([], [], 4)


def test_elements_that_are_nowhere_or_twice(mount, save, ckptfs):
    def row(name, *pieces, shape=(10, 4)):
        made = [{"file": f, "offset": at, "start": list(start), "extent": list(extent)} for f, at, start, extent in pieces]
        return {"name": name, "dtype": "float32", "shape": list(shape), "pieces": made}

    arrays = [
        row("whole", ("a.bin", 0, (0, 0), (6, 4)), ("a.bin", 96, (6, 0), (4, 4))),
        row("hole", ("a.bin", 0, (0, 0), (6, 4)), ("a.bin", 96, (7, 0), (3, 4))),
        row("double", ("a.bin", 0, (0, 0), (6, 4)), ("a.bin", 64, (4, 0), (6, 4))),
        row("cut", ("b.bin", 0, (0, 0), (10, 4))),
        row("lost", ("nosuch.bin", 0, (0, 0), (10, 4))),
    ]

    def write(top):
        trees.write(top / "a.bin", np.arange(40, dtype=np.float32).tobytes())
        trees.write(top / "b.bin", bytes(100))
        trees.write(top / "arrays.json", json.dumps({"arrays": arrays}).encode())

    save(100, write)
    found = ckptfs.json("check", mount.path, "100", check=False)
    what = {f["name"]: (f["kind"], f["what"]) for f in found["findings"]}
    assert what == {
        "hole": ("gap", "4 of 40 elements are in no file"),
        "double": ("doubled", "8 of 40 elements are in several places"),
        "cut": ("gap", "a piece lies outside of its file"),
        "lost": ("gap", "the file of a piece is missing"),
    }
    found = ckptfs.json("check", mount.path, "100", "--read-data", check=False)
    assert {f["name"] for f in found["findings"]} == what.keys() and found["read"] == 2


def test_an_index_and_its_files(mount, save, ckptfs):
    def write(top):
        save_file({"a": np.ones(3), "extra": np.ones(2)}, top / "model-00001-of-00002.safetensors")
        names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
        trees.write(top / "model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": names}).encode())

    save(100, write)
    found = ckptfs.json("check", mount.path, "100", check=False)
    assert kinds(found) == [(kind, "model.safetensors.index.json") for kind in ("broken", "extra", "missing")]
    assert [f["what"] for f in found["findings"] if f["kind"] == "missing"] == ["b, in model-00002-of-00002.safetensors"]


def test_ranks_that_are_not_there_any_more(mount, save, ckptfs):
    def write(top, ranks):
        for r in range(ranks):
            save_file(model(r), top / f"mp_rank_{r:02}.safetensors")

    save(100, lambda top: write(top, 4))
    save(200, lambda top: write(top, 3))
    found = ckptfs.json("check", mount.path, "200")
    assert [f["what"] for f in found["findings"] if f["kind"] == "ranks"] == ["files of 3 ranks, and of 4 in the step before"]
    assert found["healthy"]


def test_a_file_that_is_cut_off_and_bytes_that_are_damaged(mount, store, save, ckptfs):
    def write(top):
        np.savez_compressed(top / "z.npz", x=np.arange(50_000), y=np.ones(9))
        save_file(model(1), top / "model.safetensors")
        whole = (top / "model.safetensors").read_bytes()
        shutil.copyfile(top / "model.safetensors", top / "cut.safetensors")
        with open(top / "cut.safetensors", "r+b") as f:
            f.truncate(len(whole) - 100)

    save(100, write)
    found = ckptfs.json("check", mount.path, "100", check=False)
    assert kinds(found) == [("broken", "cut.safetensors")]
    mount.umount()
    raw = next(store.glob("sessions/*/z.npz"))
    data = bytearray(raw.read_bytes())
    data[30_000:30_500] = b"\xff" * 500  # of the elements of x, which are compressed
    raw.write_bytes(data)
    found = ckptfs.json("check", store, "100", "--read-data", check=False)
    assert ("damaged", "x") in kinds(found)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"


@pytest.mark.parametrize("name", ["model.safetensors", "a.npy", "b.npz", "c.gguf", "d.pt", "e.pth", "f.keras", "g.ckpt", "h.h5", "i.hdf5"])
def test_a_file_that_should_hold_arrays_and_holds_nothing_is_broken(save, mount, ckptfs, scratch, name):
    """A crash leaves files that are empty, a clone without Git LFS leaves pointers: no format knows them."""

    def write(top, data):
        (top / "deep").mkdir()
        trees.write(top / "deep" / name, data)
        np.save(top / "good.npy", np.arange(3))
        trees.write(top / "notes.txt", b"")
        trees.write(top / "raw.bin", bytes(100))

    said = {1: (b"", "it is empty"), 2: (POINTER, "git lfs pull")}
    for number, (data, what) in said.items():
        save(number, lambda top, data=data: write(top, data))
        found = ckptfs.json("check", mount.path, number, "--against", number, check=False)
        assert not found["healthy"] and [(f["kind"], f["file"]) for f in found["findings"]] == [("broken", f"deep/{name}")], found
        assert what in found["findings"][0]["what"] or name.endswith(("h5", "hdf5")) and number > 1
        refused = ckptfs("export", mount.path, number, scratch / "out", "-f", "npz", check=False)
        assert refused.returncode == 1 and f"deep/{name}" in refused.stderr and "--partial" in refused.stderr


def test_raw_numbers_under_the_name_of_a_format_may_be_zeros(save, mount, ckptfs):
    """A program's own bytes: `ndarray.tofile("labels.npy")`."""

    def write(top):
        np.save(top / "good.npy", np.arange(3))
        np.r_[np.zeros(20, np.int64), np.arange(9)].tofile(top / "labels.npy")

    save(1, write)
    assert ckptfs.json("check", mount.path, 1)["healthy"]
