"""The optimizer's states in Megatron's torch_dist format, from when its shards were flat."""

import numpy as np
import pytest
from support.catalog import by_name, catalog, read, same

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint.metadata as md  # noqa: E402
from support.megatron import Writer, stand  # noqa: E402
from torch.distributed.checkpoint.filesystem import _StorageInfo  # noqa: E402

torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(autouse=True)
def megatron(monkeypatch):
    stand(monkeypatch)


def tensors():
    return {
        "optimizer.state.exp_avg.decoder.w": (torch.arange(6 * 8 * 10).float().reshape(6, 8, 10), (3, 2, 1), [1, 7, 45]),
        "optimizer.state.exp_avg.decoder.b": (torch.arange(24).float().reshape(24), (4,), [2, 5]),
        "optimizer.state.exp_avg.one": (torch.arange(35).bfloat16().float().reshape(5, 7), (1, 1), []),
        "optimizer.state.exp_avg.rows": (torch.arange(64).float().reshape(8, 8), (1, 2), list(range(1, 32))),
    }


@pytest.mark.parametrize("plain", [False, True])
def test_flat_shards_are_parts_of_the_whole_array(tmp_path, plain):
    writer = Writer(tmp_path, 3)
    for key, (tensor, grid, cuts) in tensors().items():
        writer.flat(key, tensor, grid, cuts)
    writer.whole("decoder.w", torch.arange(12).reshape(3, 4))
    writer.end(plain)
    names = by_name(catalog(tmp_path, ".metadata"))
    want = {key: t[0] for key, t in tensors().items()} | {"decoder.w": torch.arange(12).reshape(3, 4)}
    assert set(names) == set(want)
    for key, tensor in want.items():
        assert same(read(tmp_path, names[key]), tensor.numpy()), key


def test_shards_that_are_not_flat_stay_as_they_are(tmp_path):
    writer = Writer(tmp_path)
    writer.flat("w", torch.arange(24.0).reshape(4, 6), (2, 3), [])
    writer.mcore = None
    writer.end()
    array = by_name(catalog(tmp_path, ".metadata"))["w"]
    assert array["shape"] == [2, 3, 4] and np.array_equal(np.sort(read(tmp_path, array).reshape(-1)), np.arange(24))


SHAPES = [(4, 7), (8, 6), (24,), (4, 6, 1), (0, 6), (2**62, 2**62), (-4, -6), "x", [4, 6]]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_shape_that_does_not_fit_the_grid_is_the_reason(tmp_path, shape):
    writer = Writer(tmp_path)
    writer.flat("w", torch.arange(24.0).reshape(4, 6), (2, 3), [1])
    writer.mcore["w"]["nd_reformulated_orig_global_shape"] = shape
    writer.end()
    found = catalog(tmp_path, ".metadata")
    assert [a["why"] for a in found["arrays"]] == ["its shape and the grid of its flat shards do not fit"]


def broken_range(writer):
    chunk = writer.state["w"].chunks[1]
    chunk.offsets = torch.Size((*chunk.offsets[:-1], 4))


def broken_box(writer):
    for chunk in writer.state["w"].chunks:
        chunk.offsets = torch.Size((2, *chunk.offsets[1:]))


def broken_sizes(writer):
    writer.state["w"].chunks[0].sizes = torch.Size((2, 1, 1))


def missing_file(writer):
    (writer.top / "__1_0.distcp").unlink()


@pytest.mark.parametrize("change,word", [(broken_range, "box"), (broken_box, "box"), (broken_sizes, "box"), (missing_file, "missing")], ids=lambda c: getattr(c, "__name__", c))
def test_a_flat_range_outside_of_its_box_is_the_reason(tmp_path, change, word):
    writer = Writer(tmp_path)
    writer.flat("w", torch.arange(24.0).reshape(4, 6), (2, 3), [1])
    change(writer)
    writer.end()
    (array,) = catalog(tmp_path, ".metadata")["arrays"]
    assert word in array["why"]


def test_a_range_that_is_missing_is_a_gap(tmp_path):
    writer = Writer(tmp_path)
    writer.flat("w", torch.arange(24.0).reshape(4, 6), (2, 3), [1])
    del writer.state["w"].chunks[3]
    writer.end()
    (array,) = catalog(tmp_path, ".metadata")["arrays"]
    assert array["why"] is None and array["gathered"] == "ENODATA"


@pytest.mark.parametrize("saved", [torch.ones(1, 1, 2), torch.ones(3), torch.ones(1, 1, 3).double(), torch.ones(1, 3, 1), torch.ones(1, 1, 6)[:, :, ::2]], ids=lambda t: f"{t.dtype}{list(t.shape)}{t.stride()}")
def test_bytes_that_are_no_such_row_are_not_read(tmp_path, saved):
    writer = Writer(tmp_path)
    writer.flat("w", torch.arange(24.0).reshape(4, 6), (2, 3), [1])
    index = md.MetadataIndex("w", (1, 1, 1))
    path = tmp_path / "other.distcp"
    torch.save(saved, path)
    writer.storage[index] = _StorageInfo(path.name, 0, path.stat().st_size)
    writer.end()
    (array,) = catalog(tmp_path, ".metadata")["arrays"]
    assert array["gathered"] == "EBADMSG"
