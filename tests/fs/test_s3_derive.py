"""derive of a step that is in the bucket alone: only what is chosen is fetched, and sent."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from support.mounting import wait_until
from test_s3 import client, environment, node, probed_before, url  # noqa: F401
from test_s3_arrays import fetched

pytestmark = pytest.mark.timeout(150)

MIB = 1 << 20


@pytest.fixture
def model():
    dice = np.random.default_rng(12)
    return {f"params.{i}": dice.integers(0, 255, 4 * MIB, np.uint8) for i in range(4)}


@pytest.fixture
def away(node, fault_proxy, model):
    """A node that has nothing of two steps, with a proxy between it and the bucket: a model with 48 MiB of optimizer, and an adapter."""
    first = node("a")
    (first / "1000").mkdir()
    save_file(model, first / "1000/model.safetensors")
    dice = np.random.default_rng(13)
    torch.save({"m": torch.from_numpy(dice.integers(0, 255, 48 * MIB, np.uint8))}, first / "1000/optimizer.pt")
    first.complete("1000")
    (first / "tuned").mkdir()
    save_file({"adapter": np.arange(MIB), "params.0": np.zeros(4 * MIB, np.uint8)}, first / "tuned/adapter.safetensors")
    first.complete("tuned")
    first.wait("1000")
    first.wait("tuned")
    n = node("b", fault_proxy.endpoint)
    wait_until(lambda: {"1000", "tuned"} <= set(n.listing()), 20, "the steps on the other node")
    return n


def test_nothing_of_the_optimizer_is_fetched(away, fault_proxy, model, ckptfs, node):
    assert fetched(fault_proxy)[0] == 0
    said = ckptfs.json("derive", away.path, "1000", "serving", "--only", "params.**")
    assert (said["shared_files"], said["arrays"]) == (0, 4) and said["shared_bytes"] == 0, "its packs might go before the bucket knows"
    assert 16 * MIB < fetched(fault_proxy)[0] <= 9 * 4 * MIB, "the model, and chunks with headers"
    said = ckptfs.json("derive", away.path, "1000", "merged", "--only", "params.**", "--merge", "tuned")
    assert (said["shared_files"], said["arrays"]) == (0, 5)
    assert fetched(fault_proxy)[0] <= 18 * 4 * MIB, "twice the model, and the adapter besides: nothing of 48 MiB"
    sent = sum(row["bytes_in"] for row in fault_proxy.log() if row["op"] in ("PutObject", "UploadPart"))
    away.wait("serving")
    assert sum(row["bytes_in"] for row in fault_proxy.log() if row["op"] in ("PutObject", "UploadPart") and "/packs/" in row["key"]) < 40 * MIB, sent
    third = node("c")
    wait_until(lambda: "serving" in third.listing(), 20, "the new step on a third node")
    found = load_file(third / "serving/model.safetensors")
    assert found.keys() == model.keys() and all(found[name].tobytes() == array.tobytes() for name, array in model.items())
