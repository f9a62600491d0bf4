"""diff --arrays: arrays of two steps by their names, whatever formats their files have, and by how much they differ."""

import json
import os

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.numpy import save_file

pytestmark = pytest.mark.timeout(120)

DICE = np.random.default_rng(7)
MODEL = {f"layers.{i}.w": DICE.standard_normal((60, 1000), np.float32) for i in range(4)} | {"head": DICE.standard_normal((7, 5)), "ids": np.arange(-3, 90, dtype=np.int64), "half": DICE.standard_normal(3000).astype(np.float16)}


def torches(model):
    return {name: torch.from_numpy(array.copy()) for name, array in model.items()}


def write_dcp(model, top):
    dcp.save(torches(model), checkpoint_id=str(top / "state"), no_dist=True)


WRITE = {
    "safetensors": lambda model, top: save_file(model, top / "model.safetensors"),
    "torch": lambda model, top: torch.save(torches(model), top / "model.pt"),
    "npz": lambda model, top: np.savez_compressed(top / "model.npz", **model),
    "dcp": write_dcp,
}


@pytest.fixture
def save(mount, commit):
    def write(name, form, model):
        (mount / name).mkdir()
        WRITE[form](model, mount / name)
        commit(mount / name)

    return write


@pytest.fixture
def arrays(ckptfs, store):
    def answer(*words, at=store):
        done = ckptfs("diff", "--arrays", at, *words, "--json", check=False)
        assert done.stderr == "", done.stderr
        found = json.loads(done.stdout)
        assert done.returncode == (1 if any(found[mark] for mark in ("added", "removed", "changed")) else 0)
        return found["arrays"]

    return answer


def changed_ones():
    """The model with a difference of each kind, and what diff is to say of them."""
    other = dict(MODEL)
    w = MODEL["layers.1.w"].copy()
    w[3, 7] = np.nextafter(w[3, 7], np.float32(9))
    w[59, 999] += np.float32(2.5)
    other["layers.1.w"] = w
    half = MODEL["half"].copy()
    half[5], half[6], half[2999] = np.nan, np.inf, 0
    other["half"] = half
    ids = MODEL["ids"].copy()
    ids[0] -= 1 << 40
    other["ids"] = ids
    del other["head"]
    other["new"] = np.ones(3, np.int8)
    return other


def codes(array):
    """Of floats, in the order of their numbers."""
    bits = array.view({2: np.uint16, 4: np.uint32, 1: np.uint8}[array.itemsize]).astype(np.int64)
    sign = 1 << (8 * array.itemsize - 1)
    return np.where(bits & sign, -(bits & (sign - 1)), bits & (sign - 1))


def test_the_same_arrays_in_other_formats_do_not_differ(save, arrays):
    for form in WRITE:
        save(form, form, MODEL)
    for one in WRITE:
        for other in set(WRITE) - {one}:
            found = arrays(one, other)
            assert (found["added"], found["removed"], found["changed"], found["unread"], found["same"]) == ([], [], [], [], len(MODEL)), (one, other)


@pytest.mark.parametrize("where", ["mounted", "at rest", "packed"])
@pytest.mark.parametrize("one, other", [("safetensors", "torch"), ("dcp", "safetensors"), ("npz", "npz"), ("safetensors", "safetensors")])
def test_by_how_much_arrays_differ(mount, store, ckptfs, save, arrays, one, other, where):
    changed = changed_ones()
    save("1", one, MODEL)
    save("2", other, changed)
    if where != "mounted":
        mount.umount()
    if where == "packed":
        ckptfs("cool", store, "1")
    found = arrays("1", "2")
    assert [(r["array"], r["dtype"], r["shape"]) for r in found["added"]] == [("new", "i8", [3])]
    assert [(r["array"], r["dtype"], r["shape"]) for r in found["removed"]] == [("head", "f64", [7, 5])]
    assert found["same"] == 3 and found["unread"] == []
    half, ids, w = found["changed"]
    assert (half["array"], ids["array"], w["array"]) == ("half", "ids", "layers.1.w")
    assert (half["elements"], half["differ"], half["nan"], half["inf"]) == (3000, 3, 1, 1)
    assert half["max_abs"] == abs(float(MODEL["half"][2999])) and half["max_ulp"] == abs(int(codes(MODEL["half"])[2999]))
    assert (ids["elements"], ids["differ"], ids["max_abs"], ids["max_ulp"]) == (93, 1, float(1 << 40), None)
    apart = np.abs(codes(changed["layers.1.w"].ravel()) - codes(MODEL["layers.1.w"].ravel()))
    assert (w["differ"], w["nan"], w["inf"], w["max_ulp"]) == (2, 0, 0, apart.max())
    assert w["max_abs"] == np.abs(changed["layers.1.w"].astype(np.float64) - MODEL["layers.1.w"]).max()
    assert (w["dtype"], w["shape"], w["was"]["dtype"], w["was"]["shape"]) == ("f32", [60, 1000], "f32", [60, 1000])


def test_types_and_shapes_that_differ(save, arrays, ckptfs, store):
    w = MODEL["layers.0.w"]
    low = w.astype(ml_dtypes.bfloat16)
    low.view(np.uint16)[0, 0] += 3
    save("1", "safetensors", {"shape": w, "w": w, "exact": np.arange(100, dtype=np.float32), "int": np.arange(5, dtype=np.int32), "complex": np.array([1 + 2j, 3], np.complex64)})
    save("2", "safetensors", {"shape": w.reshape(1000, 60), "w": low, "exact": np.arange(100, dtype=np.float16), "int": np.arange(5, dtype=np.float64), "complex": np.array([1 + 2j, 3 - 0.5j], np.complex64)})
    rows = {r["array"]: r for r in arrays("1", "2")["changed"]}
    assert rows.keys() == {"shape", "w", "exact", "int", "complex"}
    assert (rows["shape"]["shape"], rows["shape"]["was"]["shape"]) == ([1000, 60], [60, 1000]) and rows["shape"]["elements"] is rows["shape"]["max_abs"] is rows["shape"]["differ"] is None
    exact = low.astype(np.float64)
    assert (rows["w"]["dtype"], rows["w"]["was"]["dtype"], rows["w"]["max_ulp"]) == ("bf16", "f32", 3)
    assert rows["w"]["max_abs"] == np.abs(exact - w).max() and rows["w"]["differ"] == np.count_nonzero(exact != w)
    assert (rows["exact"]["differ"], rows["exact"]["max_abs"], rows["exact"]["max_ulp"]) == (0, 0, 0)
    assert (rows["int"]["differ"], rows["int"]["max_ulp"]) == (0, None)
    assert (rows["complex"]["elements"], rows["complex"]["differ"], rows["complex"]["max_abs"]) == (2, 1, 0.5)
    lines = ckptfs("diff", "-a", store, "1", "2", check=False).stdout.splitlines()
    assert lines[:3] == ["~ model.safetensors", "  ~ complex: 1 of 2 elements, max abs 0.5, max ulp 1056964608", "  ~ exact  f16 [100], was f32 [100]: 0 of 100 elements, max abs 0, max ulp 0"]
    assert lines[4] == "  ~ shape  f32 [1000, 60], was f32 [60, 1000]"


def test_a_name_that_repeats_is_one_with_its_tree(mount, commit, arrays):
    for step in "100", "200":
        top = mount / step / f"global_step{step}"
        top.mkdir(parents=True)
        for i in range(2):
            save_file({"w": np.full(9, i + (step == "200") * i, np.float32), "alone" + str(i): np.zeros(1)}, top / f"rank{i}.safetensors")
        commit(mount / step)
    found = arrays("100", "200")
    assert found["added"] == found["removed"] == [] and found["same"] == 3
    assert [(r["path"], r["was"]["path"], r["differ"], r["max_abs"]) for r in found["changed"]] == [("global_step200/rank1.safetensors", "global_step100/rank1.safetensors", 9, 1)]


def test_what_cannot_be_read_is_said(mount, store, commit, ckptfs, arrays):
    for step in "1", "2":
        top = mount / step
        top.mkdir()
        np.savez_compressed(top / "z.npz", x=np.arange(50_000) + int(step), objects=np.array([{}, step], dtype=object))
        if step == "2":
            data = bytearray((top / "z.npz").read_bytes())
            data[30_000:30_500] = b"\xff" * 500
            (top / "z.npz").write_bytes(data)
        commit(top)
    found = arrays("1", "2")
    assert [r["array"] for r in found["unread"]] == ["objects", "x"] and all(r["why"] for r in found["unread"]) and found["changed"] == []
    mount.umount()
    [lost] = [p for p in (store / "sessions").glob("*/z.npz") if b"\xff" * 400 not in p.read_bytes()]
    os.truncate(lost, lost.stat().st_size - 1)
    done = ckptfs("diff", "--arrays", store, "1", "2", check=False)
    assert done.returncode == 1 and done.stdout == "" and "ckptfs: 1" in done.stderr


def test_files_that_are_the_same_are_not_read_again(mount, store, commit, ckptfs, save, arrays, scratch):
    save("1", "safetensors", {"w": DICE.standard_normal(300_000)})
    mount.umount()
    ckptfs("get", store, "1", scratch / "copy")
    (scratch / "copy/more").write_text("x")
    ckptfs("save", store, scratch / "copy", "2")
    ckptfs("cool", store, "1", "2")
    for pack in (p for p in store.rglob("*") if p.is_file() and p.stat().st_size > 1_000_000):
        data = pack.read_bytes()
        pack.write_bytes(data[:200_000] + bytes(1_000_000) + data[1_200_000:])
    assert ckptfs("export", store, "1", scratch / "out", "-f", "npz", check=False).returncode == 1, "the data cannot be read"
    assert arrays("1", "2") == {"added": [], "removed": [], "changed": [], "same": 1, "unknown": [], "unread": []}
