"""STEP/.arrays of a step that is in the bucket alone: names and sizes cost its headers, and an array the chunks that it is in."""

import concurrent.futures
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from support.mounting import wait_until
from test_s3 import client, environment, node, probed_before, url  # noqa: F401

pytestmark = pytest.mark.timeout(150)

MIB = 1 << 20
COUNT, EACH = 6, 8 * MIB
AWAY = {"do": "reset-before"}


@pytest.fixture
def model():
    dice = np.random.default_rng(11)
    return {f"layers.{i}.w": dice.integers(0, 255, EACH, np.uint8) for i in range(COUNT)}


@pytest.fixture
def away(node, fault_proxy, model):
    """A node that has nothing of the step, with a proxy between it and the bucket."""
    first = node("a")
    (first / "1000").mkdir()
    save_file(model, first / "1000/model.safetensors")
    np.save(first / "1000/alone.npy", np.arange(10))
    first.complete("1000")
    first.wait("1000")
    n = node("b", fault_proxy.endpoint)
    wait_until(lambda: "1000" in n.listing(), 20, "the step on the other node")
    return n


def fetched(fault_proxy):
    rows = [row for row in fault_proxy.log() if row["op"] == "GetObject" and "/packs/" in row["key"]]
    return sum(row["bytes_out"] for row in rows), len(rows)


def test_what_is_read_is_what_is_fetched(away, fault_proxy, model):
    arrays = away / "1000/.arrays"
    assert fetched(fault_proxy)[0] == 0
    assert sorted(os.listdir(arrays)) == sorted(["index.json", "alone.npy", "model.safetensors", *(f"{name}.npy" for name in model)])
    assert os.stat(arrays / "layers.3.w.npy").st_size == EACH + 128 and os.stat(arrays / "index.json").st_size > 100
    headers, requests = fetched(fault_proxy)
    assert headers <= 2 * 4 * MIB and requests <= 4, "a chunk of each file"
    for name in ("layers.3.w", "layers.1.w"):
        before, so_far = fetched(fault_proxy)
        assert np.array_equal(np.load(arrays / f"{name}.npy"), model[name])
        now, requests = fetched(fault_proxy)
        assert now - before <= EACH + 2 * 4 * MIB, "chunks are of 4 MiB, and an array begins within one"
        assert requests - so_far <= 6
    before, _ = fetched(fault_proxy)
    for name in model:
        assert os.stat(arrays / f"{name}.npy").st_size == EACH + 128
    assert fetched(fault_proxy)[0] == before, "sizes are known"


def test_a_view_fetches_what_its_part_is_made_of(away, fault_proxy, model):
    view = away / "1000/.views/only=layers.**,shard=2of4"
    part = EACH // 4
    assert os.stat(view / "layers.3.w.npy").st_size == part + 128
    whole = os.stat(view / "model.safetensors").st_size
    assert part * COUNT < whole < part * COUNT + 4096
    headers, requests = fetched(fault_proxy)
    assert headers <= 2 * 4 * MIB and requests <= 4, "a chunk of each file: sizes are known without the rest"
    assert np.array_equal(np.load(view / "layers.3.w.npy"), model["layers.3.w"][part:2 * part])
    now, _ = fetched(fault_proxy)
    assert now - headers <= 2 * 4 * MIB, "a quarter of an array is in two chunks at most"
    with open(view / "model.safetensors", "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        at = whole - part + 77_777
        assert os.pread(f.fileno(), 1000, at) == model[f"layers.{COUNT - 1}.w"][part + 77_777:part + 78_777].tobytes()
    after, _ = fetched(fault_proxy)
    assert after - now <= 2 * 4 * MIB


def test_who_waits_for_the_bucket_waits_alone(away, fault_proxy, model):
    here = away / "2000"
    here.mkdir()
    np.save(here / "b.npy", np.arange(4))
    away.complete("2000")
    fault_proxy.play({"do": "stall", "seconds": 4, "where": "request", "op": "GetObject", "key": "*packs/*"})
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        waiting = [pool.submit(np.load, away / "1000/.arrays/layers.3.w.npy") for _ in range(20)]
        wait_until(lambda: any("/packs/" in row["key"] for row in fault_proxy.log()) or not waiting[0].done(), 20, "a request")
        assert np.load(here / ".arrays/b.npy").tolist() == [0, 1, 2, 3]
        assert not any(w.done() for w in waiting), "all of them wait still"
        assert all(np.array_equal(w.result(60), model["layers.3.w"]) for w in waiting)
    fault_proxy.play()
    assert fetched(fault_proxy)[1] <= 10, "and one has read each chunk for all"


def test_without_the_bucket_it_is_an_error_and_then_there(away, fault_proxy, model):
    fault_proxy.play(AWAY)
    array = away / "1000/.arrays/layers.0.w.npy"
    assert array.name in os.listdir(array.parent), "the catalog is here"
    with pytest.raises(OSError):
        np.load(array)
    fault_proxy.play()
    wait_until(lambda: load_or_none(array) is not None, 60, "the array once the bucket answers")
    assert np.array_equal(np.load(array), model["layers.0.w"])


def load_or_none(path):
    try:
        return np.load(path)
    except OSError:
        return None
