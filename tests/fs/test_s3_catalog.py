"""The catalog of a step in a bucket: another node lists its arrays by the manifest alone."""

import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from support.mounting import wait_until
from test_s3 import client, environment, node, probed_before, url  # noqa: F401

pytestmark = pytest.mark.timeout(150)

COUNT = 2_000
LOOKS = ["seal=yes", "findings=headers"]


def gets(fault_proxy, folder):
    return [row["key"] for row in fault_proxy.log() if row["op"] == "GetObject" and f"/{folder}/" in row["key"]]


@pytest.mark.parametrize("count", [3, COUNT])
def test_another_node_lists_arrays_with_one_get_and_no_data(node, ckptfs, fault_proxy, count):
    first = node("a", options=LOOKS)
    arrays = {f"layers.{i}.weight": np.random.default_rng(i).integers(0, 255, 20_000 if count > 100 else 10, np.uint8) for i in range(count)}
    (first / "1000").mkdir()
    for part in range(3):
        save_file({k: v for i, (k, v) in enumerate(arrays.items()) if i % 3 == part}, first / f"1000/model-{part}.safetensors")
    first.complete("1000")
    wait_until(lambda: ckptfs.json("info", first.path, "1000")["findings"], 60, "findings")
    wait_until(lambda: not ckptfs.json("status", first.path)["uploading"]["steps"], 60, "all of it in the bucket")
    rows = ckptfs.json("arrays", first.path, "1000")
    first.lose()
    second = node("b", fault_proxy.endpoint, options=LOOKS)
    assert second.listing() == ["1000"] and ckptfs.json("info", second.path, "1000")["findings"]["arrays"] == count
    listed = [name for name in os.listdir(second / "1000/.arrays") if name.endswith(".npy")]
    assert sorted(listed) == sorted(f"{name}.npy" for name in arrays)
    assert not gets(fault_proxy, "packs"), "no data"
    assert len(gets(fault_proxy, "m")) <= 1
    assert ckptfs.json("arrays", second.path, "1000") == rows
    assert not gets(fault_proxy, "packs") and len(gets(fault_proxy, "m")) <= 1
    name = f"layers.{count - 1}.weight"
    assert np.array_equal(np.load(second / f"1000/.arrays/{name}.npy"), arrays[name])
