"""numpy, unmodified, on a mount: .npy and .npz saved in staged steps, read back bit by bit, mapped too."""

import numpy as np
import pytest

from support.fixtures import both_modes
from support.watcher import watch

pytestmark = pytest.mark.timeout(120)

DTYPES = ["float16", "float32", "float64", "int8", "uint64", "complex64", "bool"]


def arrays(seed):
    dice = np.random.default_rng(seed)
    made = {d: dice.integers(0, 2, 4000).astype(d).reshape(40, 100) if d == "bool" else dice.standard_normal((40, 100)).astype(d) for d in DTYPES}
    made["scalar"] = np.float32(seed)
    made["empty"] = np.zeros((0, 7), np.int32)
    made["fortran"] = np.asfortranarray(dice.standard_normal((50, 3)))
    made["nan"] = np.array([np.nan, np.inf, -0.0], np.float32)
    return made


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


@both_modes
def test_npy_files_of_a_step_are_read_back_exactly(world, mount, commit):
    with watch(world, mount.path) as w:
        for step in range(5):
            folder = mount / str(step)
            folder.mkdir()
            for name, a in arrays(step).items():
                np.save(folder / f"{name}.npy", a)
            commit(folder)
    w.check(expect=5)
    mount.remount()
    for step in range(5):
        for name, a in arrays(step).items():
            assert same(np.load(mount / str(step) / f"{name}.npy"), a), name


@both_modes
def test_npz_with_its_back_seeks_is_read_back_exactly(mount, commit):
    (mount / "7").mkdir()
    np.savez(mount / "7/plain.npz", **arrays(7))
    np.savez_compressed(mount / "7/packed.npz", **arrays(7))
    commit(mount / "7")
    mount.remount()
    for name in ("plain", "packed"):
        with np.load(mount / f"7/{name}.npz") as z:
            assert sorted(z.files) == sorted(arrays(7))
            assert all(same(z[n], a) for n, a in arrays(7).items())


def test_large_array_with_its_fallocate(mount, commit):
    """From 16 MiB on numpy reserves the space first."""
    big = np.random.default_rng(1).integers(0, 255, 40 << 20, dtype=np.uint8)
    (mount / "1").mkdir()
    np.save(mount / "1/big.npy", big)
    big.tofile(mount / "1/big.raw")
    commit(mount / "1")
    mount.remount()
    assert np.array_equal(np.load(mount / "1/big.npy"), big)
    assert np.array_equal(np.fromfile(mount / "1/big.raw", np.uint8), big)


def test_mapped_arrays(mount, commit):
    (mount / "1").mkdir()
    path = mount / "1/a.npy"
    staged = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(300, 1000))
    staged[:] = np.arange(300_000.0).reshape(300, 1000)
    staged.flush()
    staged._mmap.close()
    change = np.load(path, mmap_mode="r+")
    change[5, 5] = -1
    change.flush()
    change._mmap.close()
    del staged, change
    commit(mount / "1")
    mount.remount()
    want = np.arange(300_000.0).reshape(300, 1000)
    want[5, 5] = -1
    for mode in ("r", "c"):
        got = np.load(path, mmap_mode=mode)
        assert np.array_equal(got, want)
        if mode == "c":
            got[0, 0] = 9  # a private copy of the page, not of the step
        got._mmap.close()
    for value, crash in ((7, False), (8, True)):
        change = np.load(path, mmap_mode="r+")  # reopens the step
        change[0, 0] = value
        change.flush()
        change._mmap.close()
        del change
        assert mount.listing() == [] and np.load(path)[0, 0] == value
        if crash:
            mount.kill9()
            mount.start()
        else:
            mount.remount()
            want[0, 0] = value  # an orderly end commits what is closed and whole
        assert mount.listing() == ["1"] and np.array_equal(np.load(path), want), "after a crash the version before is back"


def test_arrays_in_a_plain_folder_are_live(mount):
    (mount / "plain").mkdir()
    for n in range(3):
        np.save(mount / "plain/history.npy", np.arange(n))
        assert np.array_equal(np.load(mount / "plain/history.npy"), np.arange(n))
    mount.remount()
    assert np.array_equal(np.load(mount / "plain/history.npy"), np.arange(2))
