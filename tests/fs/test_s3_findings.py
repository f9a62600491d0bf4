"""Findings of a store that nodes share: the node that made a step looks into it, and all others see what it found."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from support.mounting import wait_until
from test_s3 import client, environment, node, probed_before, url  # noqa: F401

pytestmark = pytest.mark.timeout(150)

ON = ["seal=yes", "findings=elements"]


def write(node, name, bad):
    dice = np.random.default_rng(int(name))
    array = dice.standard_normal((200, 100), np.float32)
    if bad:
        array[1, 2] = np.nan
    (node / name).mkdir()
    save_file({"w": array, "bias": dice.standard_normal(30)}, node / name / "model.safetensors")
    node.complete(name)


def test_another_node_sees_what_was_found(node, ckptfs):
    first, second = node("a", options=ON), node("b", options=ON)

    def row(n, name):
        return ckptfs.json("info", n.path, name)

    for name in ("1000", "2000"):
        write(first, name, bad=name == "2000")
    wait_until(lambda: row(first, "2000")["healthy"] is False and row(first, "1000")["healthy"], 60, "findings")
    first.wait("2000")
    wait_until(lambda: "2000" in second.listing() and row(second, "2000")["findings"] and row(second, "1000")["findings"], 60, "findings there")
    for name in ("1000", "2000"):
        assert row(second, name)["findings"] == row(first, name)["findings"]
    assert ckptfs("latest", second.path, "--healthy").stdout == "1000\n"
    assert " committed ! " in ckptfs("ls", "-l", second.path).stdout
    by = {v["by"]["node"] for v in row(second, "2000")["versions"]}
    assert len(by) == 1 and "ckptfs_findings_steps_total 0\n" in (second / ".ckptfs/metrics").read_text(), "only its own node has looked"
    assert not any("in its arrays" in line for line in second.errors())

    # A word of the other node on the step at the same time is no conflict with it.
    write(second, "3000", bad=True)
    second.wait("3000")
    wait_until(lambda: "3000" in first.listing(), 60, "the step on the first node")
    (first / "3000/.finalize").write_bytes(b'{"metrics": {"loss": 1.5}}')
    wait_until(lambda: all((r := row(n, "3000"))["metrics"] == {"loss": 1.5} and r["healthy"] is False for n in (first, second)), 90, "both on both")
    assert all(n.listing() == ["1000", "2000", "3000"] for n in (first, second))


def test_a_step_of_another_node_is_not_fetched_to_look_at_it(node, ckptfs):
    first, second = node("a", options=["seal=yes", "findings=off"]), node("b", options=ON)
    write(first, "1000", bad=True)
    first.wait("1000")
    wait_until(lambda: "1000" in second.listing(), 60, "the step on the other node")
    write(second, "2000", bad=False)
    wait_until(lambda: ckptfs.json("info", second.path, "2000")["findings"], 60, "findings of a later step")
    assert ckptfs.json("info", second.path, "1000")["findings"] is None
    assert ckptfs("latest", second.path, "--healthy").stdout == "2000\n"
