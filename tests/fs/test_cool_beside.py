"""Weights that are stored beside their fp32 master: through the mount and the verbs, whatever becomes of the master."""

import os
import random

import numpy
import pytest

from support import trees
from support.fixtures import both_modes
from support.mounting import wait_until
from support.packs import clean, flip, packs, unreadable
from support.weights import model, rounded

pytestmark = pytest.mark.timeout(240)

MB = 1 << 20
ELEMENTS = 5 * MB // 2  # weights of two chunks, a master of three


@pytest.fixture
def options(request):
    return getattr(request, "param", ["target_data_file_size=1MiB"])  # each chunk of the master has a pack of its own


def write(mount, commit, name, **arrays):
    """A step with these arrays and a text; {path: bytes}."""
    (mount / name).mkdir()
    for path, array in arrays.items():
        numpy.save(mount / name / path, array)
    (mount / name / "config").write_text("{}\n")
    commit(mount / name)
    return trees.files(mount / name)


@both_modes
def test_weights_cost_next_to_nothing_beside_their_master(mount, store, commit, ckptfs):
    weights, master = model(1, ELEMENTS)
    alone = write(mount, commit, "1000", **{"model.npy": weights})
    made = write(mount, commit, "2000", **{"model.npy": weights, "states.npy": master})
    ckptfs("cool", store, "2000")
    du = ckptfs.json("du", store, "2000")
    assert du["codecs"]["round"]["in_bytes"] == weights.nbytes and du["codecs"]["round"]["out_bytes"] < weights.nbytes // 100
    beside = int(os.getxattr(mount / "2000/model.npy", "user.ckptfs.stored_bytes"))
    assert beside < weights.nbytes // 50
    ckptfs("cool", store, "1000")
    assert "round" not in ckptfs.json("du", store, "1000")["codecs"], "it has no master"
    assert int(os.getxattr(mount / "1000/model.npy", "user.ckptfs.stored_bytes")) > 20 * beside
    for _ in range(2):
        assert trees.files(mount / "1000") == alone and trees.files(mount / "2000") == made
        some = random.Random(1)
        with open(mount / "2000/model.npy", "rb") as f:
            for _ in range(20):
                at = some.randrange(weights.nbytes)
                assert os.pread(f.fileno(), 100_000, at) == made["model.npy"][at:at + 100_000]
        clean(ckptfs, store)
        mount.remount()
    assert ckptfs.json("warm", store, "2000", "--only", "model.npy")["files"] == 1
    assert trees.files(mount / "2000") == made
    assert ckptfs.json("cool", store, "2000")["stored_bytes"] == 0
    assert trees.files(mount / "2000") == made and mount.errors() == []
    clean(ckptfs, store)


def test_a_master_that_is_removed_is_kept_for_its_weights(mount, store, commit, ckptfs):
    weights, master = model(1, ELEMENTS)
    made = write(mount, commit, "1000", **{"model.npy": weights, "states.npy": master})
    ckptfs("cool", store, "1000")
    taken = ckptfs.json("du", store)["packed_bytes"]
    ckptfs("rm", store, "1000/states.npy")
    del made["states.npy"]
    ckptfs("gc", store, "--grace", "0", "--force")
    mount.remount()
    assert trees.files(mount / "1000") == made
    kept = ckptfs.json("du", store)["packed_bytes"]
    assert master.nbytes // 2 < kept <= taken, "it is still there, and counted"
    clean(ckptfs, store)
    ckptfs("begin", store, "2000", "--from", "1000")
    ckptfs("commit", store, "2000")
    assert trees.files(mount / "2000") == made
    ckptfs("cool", store, "2000")
    ckptfs("rm", store, "1000", "--now", "--yes")
    ckptfs("gc", store, "--grace", "0", "--force")
    mount.remount()
    assert trees.files(mount / "2000") == made
    clean(ckptfs, store)
    ckptfs("rm", store, "2000", "--now", "--yes")

    def emptied():
        ckptfs("gc", store, "--grace", "0", "--force")
        return packs(store) == []

    wait_until(emptied, 30)  # close(2) does not wait until the mount has heard of it


@pytest.mark.parametrize("removed", [False, True], ids=["there", "removed"])
def test_damage_of_the_master_is_found_for_the_weights(mount, store, commit, ckptfs, removed):
    weights, master = model(1, 3 * MB // 2)  # one chunk of two
    made = write(mount, commit, "1000", **{"model.npy": weights, "states.npy": master})
    ckptfs("cool", store, "1000")
    if removed:
        ckptfs("rm", store, "1000/states.npy")
        del made["states.npy"]
    mount.remount()
    both = 0
    for pack in packs(store):
        data = pack.read_bytes()
        for ruin in (lambda p=pack: flip(p, 40 + p.stat().st_size // 3), pack.unlink):
            ruin()
            failed = unreadable(mount / "1000", made)
            bad = ckptfs.json("verify", "--read-data", store, check=False)["bad"]
            assert {b["path"] for b in bad} == (failed or {None})
            assert all(pack.name in b["problem"] for b in bad), bad
            if not pack.exists():
                assert {b["path"] for b in ckptfs.json("verify", store, check=False)["bad"]} == (failed or {None})
            both += failed >= {*made} - {"config"}
            pack.write_bytes(data)
            mount.remount()
    assert both >= 4, "whatever pack of the master it is, the weights are lost with it"
    assert unreadable(mount / "1000", made) == set()
    clean(ckptfs, store)


def test_a_step_of_many_weights_and_arrays_that_only_look_alike(mount, store, commit, ckptfs):
    arrays = {}
    for i in range(6):
        arrays[f"w{i}.npy"], arrays[f"m{5 - i}.npy"] = model(i, 70_000 + i % 2)
    like = arrays["m5.npy"].copy()  # that of w0, but for its middle
    like[:34_000] = 0.5
    like[36_500:] = -0.5
    arrays["a.npy"] = like
    arrays["ones.npy"], arrays["one.npy"] = numpy.ones(70_000, numpy.float32), rounded(numpy.ones(70_000, numpy.float32))
    arrays["mixed.npy"] = numpy.concatenate([arrays["w1.npy"][:35_000], arrays["w3.npy"][35_000:]])
    made = write(mount, commit, "1000", **arrays)
    ckptfs("cool", store, "1000")
    mount.remount()
    assert trees.files(mount / "1000") == made
    beside = [p for p in made if p.startswith("w") and int(os.getxattr(mount / "1000" / p, "user.ckptfs.stored_bytes")) < len(made[p]) // 20]
    assert {*beside} == {f"w{i}.npy" for i in range(6)}
    clean(ckptfs, store)


# --- Differences to an earlier step ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [["delta=2"]], indirect=True)
def test_a_step_is_stored_as_what_differs_from_the_one_before(mount, store, commit, ckptfs):
    """Four steps of training: the second and the third are differences to the first, the fourth is whole."""
    noise, (_, master), made, stored = numpy.random.default_rng(2), model(1, ELEMENTS), {}, {}
    for step in ("1000", "2000", "3000", "4000"):
        made[step] = write(mount, commit, step, **{"model.npy": rounded(master), "states.npy": master})
        master = master + (noise.standard_normal(ELEMENTS) * 1e-6).astype(numpy.float32)
        done = ckptfs.json("cool", mount / step)
        stored[step] = done["stored_bytes"]
        assert ("delta" in ckptfs.json("du", store, step)["codecs"]) == (step in ("2000", "3000"))
    assert max(stored["2000"], stored["3000"]) < 0.8 * stored["1000"] and stored["4000"] > 0.9 * stored["1000"]
    for _ in range(2):
        assert {step: trees.files(mount / step) for step in made} == made
        clean(ckptfs, store)
        mount.remount()
    ckptfs("rm", store, "1000", "--now", "--yes")
    del made["1000"]
    ckptfs("gc", store, "--grace", "0", "--force")
    mount.remount()
    assert {step: trees.files(mount / step) for step in made} == made
    clean(ckptfs, store)
    for step in ("2000", "3000"):
        ckptfs("rm", store, step, "--now", "--yes")
    ckptfs("gc", store, "--grace", "0", "--force")
    assert sum(p.stat().st_size for p in packs(store)) < 1.1 * stored["4000"] and mount.errors() == []
