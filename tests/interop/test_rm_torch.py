"""rm --arrays of torch.save()'s files: torch loads what is left, and all else is as it was."""

import collections
import copy
import io
import zipfile

import pytest

from support import trees

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.timeout(240)


class Bag:
    """An object whose attributes are arrays."""

    def __init__(self, **values):
        self.__dict__.update(values)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(16, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight  # tied


def put(mount, commit, files, step="1000"):
    top = mount / step
    top.mkdir()
    for name, value in files.items():
        torch.save(value, top / name)
    commit(top)
    return top


def names(ckptfs, mount, step="1000"):
    return {r["name"] for r in ckptfs.json("arrays", mount.path, step)}


def refused(mount, ckptfs, prefix, *words, step="1000"):
    """And nothing has changed."""
    before, number = trees.files(mount / step), ckptfs.json("info", mount.path, step)["version"]
    run = ckptfs("rm", "--arrays", prefix, mount.path, step, check=False)
    assert run.returncode == 1 and "derive" in run.stderr and all(w in run.stderr for w in words), run.stderr
    assert trees.files(mount / step) == before and ckptfs.json("info", mount.path, step)["version"] == number


def same(a, b):
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride() and torch.equal(a, b) and a.requires_grad == b.requires_grad
    if isinstance(a, dict):
        return (type(a) is type(b) and list(a) == list(b) and all(same(v, b[k]) for k, v in a.items())
                and same(getattr(a, "_metadata", None), getattr(b, "_metadata", None)))
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.nn.Module):
        return same(a.state_dict(), b.state_dict())
    return type(a) is type(b) and a == b


def without(value, prefix, path=""):
    """A copy in which no dictionary has a tensor whose name begins so."""
    if not isinstance(value, (dict, list, tuple)):
        return value
    if not isinstance(value, dict):
        return type(value)(without(v, prefix, f"{path}{i}.") for i, v in enumerate(value))
    left = copy.copy(value)
    for k, v in value.items():
        if isinstance(v, torch.Tensor) and f"{path}{k}".startswith(prefix):
            del left[k]
        else:
            left[k] = without(v, prefix, f"{path}{k}.")
    return left


def storages(value, found):
    if isinstance(value, torch.Tensor):
        found.add(value.untyped_storage().data_ptr())
    elif isinstance(value, (dict, list, tuple)):
        for v in value.values() if isinstance(value, dict) else value:
            storages(v, found)
    return found


def members(data):
    """Names to bytes, in the order of the file; their sums are compared on the way, and where they begin."""
    found = {}
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        assert z.testzip() is None
        for i in z.infolist():
            head = data[i.header_offset:i.header_offset + 30]
            assert (i.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")) % 64 == 0
            found[i.filename.partition("/")[2]] = z.read(i)
    return found


def check_zip(was, now):
    was, now = members(was), members(now)
    gone = set(was) - set(now)
    assert [n for n in was if n in now] == list(now), "the order of members"
    assert all(now[n] == was[n] for n in now if n != "data.pkl") and now["version"] == was["version"]
    assert {n for n in gone if not n.startswith("data/")} == {".format_version"}
    assert {"byteorder", ".data/serialization_id", ".storage_alignment"} <= set(now)
    return {n for n in gone if n.startswith("data/")}


def trained():
    """A state dict with its metadata, as torch makes it, an optimizer with integer keys, and what else trainers put in."""
    torch.manual_seed(4)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.125)
    net.head(net.norm(net.embed(torch.arange(6)))).square().sum().backward()
    optimizer.step()
    return net, {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "name": "déjà vu", "large": 1 << 90, "loss": 0.1,
                 "betas": (0.9, 0.999), "rng": torch.get_rng_state(), "best": {"model": torch.arange(3.0)}, 7: torch.ones(2)}


PREFIXES = ["optimizer.", "optimizer.state.0.exp_avg", "model.", "model.norm.", "model.embed", "model.head", "rng", "best", "7", "o", "m"]


@pytest.mark.parametrize("where, prefix", [("mounted", p) for p in PREFIXES] + [("at rest", "optimizer."), ("packed", "model.embed")])
def test_a_checkpoint_loads_without_them(mount, store, commit, ckptfs, where, prefix):
    net, state = trained()
    state["optimizer"]["param_groups"][0]["foreach"] = None
    top = put(mount, commit, {"all.pt": state})
    before, was = trees.files(top), names(ckptfs, mount)
    if where == "packed":
        ckptfs("cool", mount.path, "1000")
    if where == "at rest":
        mount.umount()
    ckptfs("rm", "--arrays", prefix, store if where == "at rest" else mount.path, "1000")
    if where == "at rest":
        mount.start()
    want = without(state, prefix)
    for options in {"weights_only": True}, {"weights_only": True, "mmap": True}, {"weights_only": False}:
        got = torch.load(top / "all.pt", **options)
        assert same(got, want) and not same(got, state), prefix
    if {"head.weight", "embed.weight"} <= set(got["model"]):
        assert got["model"]["head.weight"].data_ptr() == got["model"]["embed.weight"].data_ptr(), "still tied"
    assert names(ckptfs, mount) == {n for n in was if not n.startswith(prefix)}
    gone = check_zip(before["all.pt"], (top / "all.pt").read_bytes())
    assert len(gone) == len(storages(state, set())) - len(storages(want, set()))
    assert ckptfs.json("check", mount.path, "1000")["findings"] == [] and ckptfs.json("verify", mount.path)["bad"] == []
    mount.remount()
    assert same(torch.load(top / "all.pt", weights_only=True), want)
    ckptfs("restore", mount.path, "1000@-1")
    assert trees.files(top) == before


@pytest.mark.parametrize("prefix", ["a", "b", "c", "view.0", "flat"])
def test_storages_that_others_use_stay(mount, commit, ckptfs, prefix):
    """Views of one storage, and one tensor under two names: whichever is dropped, the others have their bytes."""
    base = torch.arange(1000.0).reshape(10, 100)
    one = torch.nn.Parameter(torch.randn(3, 4))
    state = {"a": base[2:4], "view": {"0": base.t(), "1": base[::2, 5:9]}, "flat": base, "b": one, "c": one, "only": torch.ones(5, dtype=torch.bfloat16)}
    top = put(mount, commit, {"all.pt": state})
    before = (top / "all.pt").read_bytes()
    ckptfs("rm", "--arrays", prefix, mount.path, "1000")
    got = torch.load(top / "all.pt", weights_only=True)
    want = without(state, prefix)
    assert same(got, want) and check_zip(before, (top / "all.pt").read_bytes()) == set()
    assert len(storages(got, set())) == len(storages(want, set()))
    if prefix not in ("b", "c"):
        assert got["b"] is got["c"]


def test_one_after_the_other(mount, commit, ckptfs):
    """A shared value moves each time to the next one that needs it, and the rest is always right."""
    _, state = trained()
    top = put(mount, commit, {"all.pt": state})
    left = sorted(names(ckptfs, mount))
    while len(left) > 1:
        name = left.pop(0)
        ckptfs("rm", "--arrays", name, mount.path, "1000")
        left = [n for n in left if not n.startswith(name)]
        state = without(state, name)
        assert same(torch.load(top / "all.pt", weights_only=True), state)
        members((top / "all.pt").read_bytes())


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_each_protocol(mount, commit, ckptfs, protocol):
    shared = collections.OrderedDict(x=torch.ones(3), y=torch.zeros(3))
    shared._metadata = {"": {"version": 1}}
    top = mount / "1000"
    top.mkdir()
    state = {"a": {"w": torch.ones(2)}, "m": shared, "text": "a" * 300, "numbers": list(range(2000)), "bytes": b"x" * 70}
    torch.save(state, top / "all.pt", pickle_protocol=protocol)
    commit(top)
    for prefix in "a", "m.x":
        ckptfs("rm", "--arrays", prefix, mount.path, "1000")
        state = without(state, prefix)
        assert same(torch.load(top / "all.pt", weights_only=False), state)


@pytest.mark.parametrize("missing", ["tied", None], ids=["its storage goes", "its storage stays"])
def test_fake_tensors_and_the_meta_device_find_their_places(mount, commit, ckptfs, missing):
    """torch computes places where the file says that storages are as its writer puts them: a file that was written again does not say so."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    shared = torch.ones(100)
    state = {"a": shared, "b": torch.ones(200), "tied": shared, "c": torch.arange(50.0)}
    top = put(mount, commit, {"all.pt": {name: value for name, value in state.items() if name != missing}})
    ckptfs("rm", "--arrays", "a", mount.path, "1000")
    data = (top / "all.pt").read_bytes()
    with FakeTensorMode():
        fake = torch.load(top / "all.pt", weights_only=True)
    for got in fake, torch.load(top / "all.pt", weights_only=True, map_location="meta"):
        assert got.keys() == state.keys() - {"a", missing}
        for name, value in got.items():
            at = value.untyped_storage()._checkpoint_offset
            assert data[at:at + state[name].nbytes] == state[name].numpy().tobytes()


@pytest.mark.parametrize("align", [256, 4096])
def test_another_alignment_stays(mount, commit, ckptfs, align):
    config = pytest.importorskip("torch.utils.serialization").config
    state = {"a": torch.ones(100), "b": torch.ones(200), "c": torch.arange(50.0)}
    was = config.save.storage_alignment
    config.save.storage_alignment = align
    try:
        top = put(mount, commit, {"all.pt": state})
    finally:
        config.save.storage_alignment = was
    ckptfs("rm", "--arrays", "b", mount.path, "1000")
    data = (top / "all.pt").read_bytes()
    assert data.index(state["c"].numpy().tobytes()) % align == 0 and same(torch.load(top / "all.pt", weights_only=True), without(state, "b"))


def test_shards_of_one_model(mount, commit, ckptfs):
    """An index joins them; one shard goes, one is written again."""
    import json

    shards = {"pytorch_model-00001-of-00002.bin": {"a.w": torch.ones(3), "b.w": torch.zeros(3)}, "pytorch_model-00002-of-00002.bin": {"a.b": torch.ones(4)}}
    top = mount / "1000"
    top.mkdir()
    for name, value in shards.items():
        torch.save(value, top / name)
    index = {"metadata": {"total_size": 40}, "weight_map": {k: f for f, s in shards.items() for k in s}}
    trees.write(top / "pytorch_model.bin.index.json", json.dumps(index).encode())
    commit(top)
    ckptfs("rm", "--arrays", "a.", mount.path, "1000")
    assert {p.name for p in top.iterdir()} == {"pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"}
    assert torch.load(top / "pytorch_model-00001-of-00002.bin", weights_only=True).keys() == {"b.w"}
    index = json.loads((top / "pytorch_model.bin.index.json").read_text())
    assert index == {"metadata": {"total_size": 12}, "weight_map": {"b.w": "pytorch_model-00001-of-00002.bin"}}
    assert ckptfs.json("check", mount.path, "1000")["findings"] == []


def shared_dict():
    state = {"w": torch.ones(3), "b": torch.zeros(3)}
    return {"model": state, "ema": state, "x": torch.ones(1)}


def hidden_dict():
    state = {"w": torch.ones(3), "b": torch.zeros(3)}
    holder = collections.OrderedDict(x=torch.ones(1))
    holder.of = state
    return {"model": state, "more": holder}


@pytest.mark.parametrize("make, prefix, words", [
    (lambda: {"rng": [torch.ones(2), torch.ones(3)], "w": torch.ones(4)}, "rng.0", ["rng.0", "list"]),
    (lambda: {"rng": (torch.ones(2), torch.ones(3)), "w": torch.ones(4)}, "rng", ["rng.0", "tuple"]),
    (lambda: {"bag": Bag(w=torch.ones(2)), "w": torch.ones(4)}, "bag", ["bag.w", "object"]),
    (lambda: {"net": Net(), "w": torch.ones(4)}, "net", ["object"]),
    (Net, "_modules.norm", ["_modules.norm", "object"]),
    (shared_dict, "model.w", ["two names"]),
    (hidden_dict, "model.w", ["two places"]),
])
def test_what_cannot_be_left_out_is_refused(mount, commit, ckptfs, make, prefix, words):
    put(mount, commit, {"all.pt": make(), "other.pt": {"z": torch.ones(2)}})
    refused(mount, ckptfs, prefix, "all.pt", *words)


def test_modules_beside_a_state_stay(mount, commit, ckptfs):
    """Objects that nobody here knows keep their opcodes."""
    net, bag = Net(), Bag(w=torch.ones(2), text="x", pair=(1, 2.5))
    top = put(mount, commit, {"all.pt": {"a": torch.ones(2), "net": net, "bag": bag, "z": torch.zeros(2), "shared": bag}})
    ckptfs("rm", "--arrays", "a", mount.path, "1000")
    got = torch.load(top / "all.pt", weights_only=False)
    assert got.keys() == {"net", "bag", "z", "shared"} and same(got["net"], net) and got["bag"] is got["shared"]
    assert got["net"].head.weight is got["net"].embed.weight and torch.equal(got["bag"].w, bag.w) and got["bag"].pair == bag.pair


def test_the_form_without_a_zip_is_refused(mount, commit, ckptfs):
    top = mount / "1000"
    top.mkdir()
    torch.save({"a": torch.ones(2), "b": torch.ones(3)}, top / "old.pt", _use_new_zipfile_serialization=False)
    commit(top)
    refused(mount, ckptfs, "a", "old.pt", "1.6")


def test_a_zip_that_was_packed_again_is_refused(mount, commit, ckptfs):
    """Its pickle is stored, and what stays is compressed."""
    data, made = io.BytesIO(), io.BytesIO()
    torch.save({"a": torch.ones(2), "b": torch.ones(3)}, data)
    with zipfile.ZipFile(data) as was, zipfile.ZipFile(made, "w") as now:
        for i in was.infolist():
            now.writestr(i.filename, was.read(i), zipfile.ZIP_DEFLATED if i.filename.endswith("version") else zipfile.ZIP_STORED)
    top = mount / "1000"
    top.mkdir()
    trees.write(top / "all.pt", made.getvalue())
    commit(top)
    refused(mount, ckptfs, "a", "all.pt", "compressed")


def test_damage_of_a_storage_stays_visible(mount, commit, ckptfs):
    """The sum of a storage is not made right by copying it."""
    data = io.BytesIO()
    torch.save({"a": torch.ones(2), "b": torch.arange(30.0)}, data)
    broken = data.getvalue().replace(torch.arange(30.0).numpy().tobytes(), torch.arange(1.0, 31.0).numpy().tobytes())
    top = mount / "1000"
    top.mkdir()
    trees.write(top / "all.pt", broken)
    commit(top)
    ckptfs("rm", "--arrays", "a", mount.path, "1000")
    assert zipfile.ZipFile(top / "all.pt").testzip().endswith("data/1")


def test_numpy_and_sparse_arrays_go_with_their_keys(mount, commit, ckptfs):
    import numpy as np

    state = {"n": np.arange(4), "s": torch.eye(3).to_sparse(), "w": torch.ones(3), "scalar": np.float64(1.5)}
    top = put(mount, commit, {"all.pt": state})
    for prefix in "n", "s":
        ckptfs("rm", "--arrays", prefix, mount.path, "1000")
        state.pop(prefix)
        got = torch.load(top / "all.pt", weights_only=False)
        assert got.keys() == state.keys() and torch.equal(got["w"], state["w"]) and got["scalar"] == 1.5


def test_pickles_of_hands_are_right_or_refused(mount, commit, ckptfs):
    """A key that is set twice, and a value that is taken back: Python loads what is left, or it is refused."""
    data = io.BytesIO()
    torch.save({"a": torch.ones(2), "b": torch.ones(3)}, data)
    for step, (old, new) in enumerate({b"u.": b"uX\x01\x00\x00\x00zK\x05s.", b"}q\x00": b"}q\x00K\x050"}.items(), 1):
        made = io.BytesIO()
        with zipfile.ZipFile(data) as was, zipfile.ZipFile(made, "w") as now:
            for i in was.infolist():
                content = was.read(i)
                now.writestr(i.filename, content.replace(old, new) if i.filename.endswith("data.pkl") else content)
        top = mount / str(step)
        top.mkdir()
        trees.write(top / "all.pt", made.getvalue())
        commit(top)
        if b"0" in new[-1:]:
            refused(mount, ckptfs, "a", "all.pt", step=str(step))
        else:
            ckptfs("rm", "--arrays", "a", mount.path, str(step))
            assert torch.load(top / "all.pt", weights_only=True).keys() == {"b", "z"}
