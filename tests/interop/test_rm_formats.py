"""rm --arrays of formats that keep their metadata apart from the arrays: the format's own library reads what is left."""

import json
import os
import pickle
import shutil
import subprocess

import numpy as np
import pytest

from support import trees
from support.fixtures import SOURCE

pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

PROGRAM = os.environ.get("CKPTFS") or str(SOURCE / "build/ckptfs")


def names(ckptfs, mount, step="1000"):
    return {r["name"] for r in ckptfs.json("arrays", mount.path, step)}


def put(mount, commit, top, step="1000"):
    shutil.copytree(top, mount / step)
    commit(mount / step)


def check(mount, ckptfs, before, step="1000"):
    """The step is sound now, and restored it is as it was."""
    after = trees.files(mount / step)
    assert ckptfs.json("check", mount.path, step)["findings"] == [] and ckptfs.json("verify", mount.path)["bad"] == []
    mount.remount()
    assert trees.files(mount / step) == after
    ckptfs("restore", mount.path, f"{step}@-1")
    assert trees.files(mount / step) == before


def refused(mount, ckptfs, prefix, *words, step="1000"):
    """And nothing has changed."""
    before, number = trees.files(mount / step), ckptfs.json("info", mount.path, step)["version"]
    run = ckptfs("rm", "--arrays", prefix, mount.path, step, check=False)
    assert run.returncode == 1 and all(w in run.stderr for w in words), run.stderr
    assert trees.files(mount / step) == before and ckptfs.json("info", mount.path, step)["version"] == number


def killed(mount, store, ckptfs, prefix, blocks, step="1000"):
    """By the disk's limit of the size of a file, while it writes one. The step is as it was."""
    before = trees.files(mount / step)
    mount.umount()
    run = subprocess.run(["sh", "-c", 'ulimit -f "$1"; shift; exec "$@"', "sh", str(blocks), PROGRAM, "rm", "--arrays", prefix, store, step],
                         capture_output=True, check=False)
    assert run.returncode < 0 or run.returncode > 128, run
    mount.start()
    assert trees.files(mount / step) == before and ckptfs.json("verify", mount.path)["bad"] == []


# --- zarr -----------------------------------------------------------------------------------------------------------------


def zarr_tree(top, version):
    """A group with two groups of arrays, whose metadata are consolidated in the way of zarr-python."""
    ts = pytest.importorskip("tensorstore")
    dice = np.random.default_rng(7)
    arrays, metadata = {}, {}
    for name in "model/w", "model/b", "optim/w/m", "optim/w/v":
        arrays[name] = dice.standard_normal((30, 20)).astype(np.float32)
        spec = {"driver": "zarr3" if version == 3 else "zarr", "kvstore": {"driver": "file", "path": str(top / name)},
                "metadata": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [16, 16]}}} if version == 3 else {"chunks": [16, 16]}}
        ts.open(spec, create=True, dtype=ts.float32, shape=(30, 20)).result().write(arrays[name]).result()
    for group in "", "model", "optim", "optim/w":
        if version == 3:
            trees.write(top / group / "zarr.json", json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {"of": group, "pi": 3.25}}).encode())
        else:
            trees.write(top / group / ".zgroup", b'{"zarr_format": 2}')
            trees.write(top / group / ".zattrs", json.dumps({"of": group}).encode())
    for file in sorted(top.rglob("zarr.json" if version == 3 else ".z*")):
        key = file.relative_to(top)
        metadata[str(key.parent if version == 3 else key)] = json.loads(file.read_text())
    if version == 2:
        trees.write(top / ".zmetadata", json.dumps({"metadata": metadata, "zarr_consolidated_format": 1}).encode())
    else:
        del metadata["."]
        for key, node in metadata.items():  # as zarr-python nests them, and as it does not
            if key == "optim":
                node["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": {k[6:]: v for k, v in metadata.items() if k.startswith("optim/")}}
        root = json.loads((top / "zarr.json").read_text())
        root["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": metadata}
        trees.write(top / "zarr.json", json.dumps(root).encode())
    return arrays


def all_keys(value):
    """Of objects in each other."""
    return {k for k, v in value.items()} | {i for v in value.values() if isinstance(v, dict) for i in all_keys(v)}


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("where", ["mounted", "at rest", "packed"])
@pytest.mark.parametrize("version", [2, 3])
def test_folders_of_zarr_are_gone_and_what_names_them_is_written_again(mount, store, scratch, commit, ckptfs, version, where, below):
    ts = pytest.importorskip("tensorstore")
    top = scratch / "made"
    folder = top / "state" if below else top
    folder.mkdir(parents=True)
    arrays = zarr_tree(folder, version)
    put(mount, commit, top)
    before = trees.files(mount / "1000")
    if where == "packed":
        ckptfs("cool", mount.path, "1000")
    if where == "at rest":
        mount.umount()
    base = "state/" if below else ""
    ckptfs("rm", "--arrays", base + "optim/w/v", store if where == "at rest" else mount.path, "1000")
    if where == "at rest":
        mount.start()
    after = trees.files(mount / "1000")
    changed = {p for p in after if after[p] != before[p]}
    assert set(before) - set(after) == {p for p in before if p.startswith(base + "optim/w/v/")} and not set(after) - set(before)
    assert changed == {base + (".zmetadata" if version == 2 else "zarr.json")}
    assert not (mount / "1000" / base / "optim/w/v").exists()
    assert names(ckptfs, mount) == {base + n for n in arrays if n != "optim/w/v"}
    (file,) = changed
    old, new = json.loads(before[file]), json.loads(after[file])
    if version == 2:
        assert new["metadata"] == {k: v for k, v in old["metadata"].items() if not k.startswith("optim/w/v/")}
    else:
        assert not {"optim/w/v", "w/v"} & all_keys(new) and {"optim/w/v", "w/v"} <= all_keys(old)
        assert new["attributes"] == old["attributes"]
        assert set(new["consolidated_metadata"]["metadata"]) == set(old["consolidated_metadata"]["metadata"]) - {"optim/w/v"}
    for name in names(ckptfs, mount):
        spec = {"driver": "zarr3" if version == 3 else "zarr", "kvstore": {"driver": "file", "path": str(mount / "1000" / name)}}
        assert np.array_equal(ts.open(spec, open=True).result().read().result(), arrays[name.removeprefix(base)])
    check(mount, ckptfs, before)


def test_the_array_that_is_the_step_itself_is_refused(mount, scratch, commit, ckptfs):
    ts = pytest.importorskip("tensorstore")
    top = scratch / "made"
    ts.open({"driver": "zarr", "kvstore": {"driver": "file", "path": str(top)}}, create=True, dtype=ts.float32, shape=(3,)).result().write(1).result()
    np.save(top / "x.npy", np.arange(3))
    put(mount, commit, top)
    refused(mount, ckptfs, ".", "zarr2", "derive")


@pytest.mark.parametrize("name", ["/x", "//", "/", "../x"])
def test_names_that_lead_nowhere_are_no_folders(mount, scratch, commit, ckptfs, name):
    top = scratch / "made"
    top.mkdir()
    zarr_tree(top, 2)
    consolidated = json.loads((top / ".zmetadata").read_text())
    consolidated["metadata"][f"{name}/.zarray"] = {}
    (top / ".zmetadata").write_text(json.dumps(consolidated))
    put(mount, commit, top)
    ckptfs("rm", "--arrays", "optim/w/v", mount.path, "1000", timeout=60)
    assert f"{name}/.zarray" in json.loads((mount / "1000/.zmetadata").read_text())["metadata"]
    assert names(ckptfs, mount) == {"model/w", "model/b", "optim/w/m"}


@pytest.mark.parametrize("text", [b'{"metadata": [', b'{"metadata": {"optim/w/v/.zarray": {"fill_value": NaN}}}'])
def test_metadata_that_cannot_be_written_again_are_refused(mount, scratch, commit, ckptfs, text):
    top = scratch / "made"
    top.mkdir()
    zarr_tree(top, 2)
    trees.write(top / ".zmetadata", text)
    put(mount, commit, top)
    refused(mount, ckptfs, "optim", ".zmetadata", "derive")


# --- Orbax ----------------------------------------------------------------------------------------------------------------


def orbax_tree(path, zarr3):
    os.environ["JAX_PLATFORMS"] = "cpu"
    jnp = pytest.importorskip("jax.numpy")
    ocp = pytest.importorskip("orbax.checkpoint")
    tree = {"params": {"w": jnp.ones((40, 30)), "b": jnp.arange(3.0)}, "optim": {"m": jnp.zeros((40, 30)), "n.o": [np.arange(4), 5]}, "optimist": "text", "step": 7}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=zarr3)) as c:
        c.save(path, args=ocp.args.PyTreeSave(tree))
    return ocp, tree


@pytest.mark.parametrize("where", ["mounted", "at rest"])
@pytest.mark.parametrize("zarr3", [False, True])
def test_orbax_restores_what_is_left(mount, store, scratch, commit, ckptfs, zarr3, where):
    ocp, tree = orbax_tree(scratch / "made/default", zarr3)
    put(mount, commit, scratch / "made")
    before = trees.files(mount / "1000")
    assert {"default/optim.m", "default/optim.n.o.0"} <= names(ckptfs, mount)
    if where == "at rest":
        mount.umount()
    ckptfs("rm", "--arrays", "default/optim", store if where == "at rest" else mount.path, "1000")
    if where == "at rest":
        mount.start()
    after = trees.files(mount / "1000")
    changed = {p for p in after if after[p] != before[p]}
    assert changed == {f"default/{p}" for p in ("_METADATA", "_sharding", "array_metadatas/process_0")}
    for p in changed:
        assert b"b3B0aW0" not in after[p] and b"optim." not in after[p] and b"'optim'" not in after[p], after[p]
    assert names(ckptfs, mount) == {f"default/{n}" for n in ("params.w", "params.b", "step")}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as c:
        got = c.restore(mount.path / "1000/default")
    assert got.keys() == {"params", "step", "optimist"} and got["optimist"] == "text" and got["step"] == 7
    for name, value in tree["params"].items():
        assert np.array_equal(got["params"][name], value)
    check(mount, ckptfs, before)


def test_killed_while_it_writes_metadata_it_has_changed_nothing(mount, store, scratch, commit, ckptfs):
    top = scratch / "made"
    top.mkdir()
    zarr_tree(top, 2)
    metadata = json.loads((top / ".zmetadata").read_text())
    metadata["metadata"]["model/.zattrs"] = {"text": "x" * 200000}
    trees.write(top / ".zmetadata", json.dumps(metadata).encode())
    put(mount, commit, top)
    killed(mount, store, ckptfs, "optim", 100)
    ckptfs("rm", "--arrays", "optim", mount.path, "1000")
    assert names(ckptfs, mount) == {"model/b", "model/w"}


def test_of_ocdbt_it_is_refused(mount, scratch, commit, ckptfs):
    os.environ["JAX_PLATFORMS"] = "cpu"
    ocp = pytest.importorskip("orbax.checkpoint")
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as c:
        c.save(scratch / "made", args=ocp.args.PyTreeSave({"a": np.arange(4), "b": np.arange(5)}))
    put(mount, commit, scratch / "made")
    refused(mount, ckptfs, "a", "ocdbt", "derive")


# --- torch.distributed.checkpoint -----------------------------------------------------------------------------------------


def dcp_state(torch):
    torch.manual_seed(3)
    shared = torch.randn(100, 100)
    return {"model": {f"layer{i}.w": torch.randn(100, 100, dtype=torch.float64 if i == 1 else torch.float32) for i in range(3)} | {"tied": shared},
            "optim": {"state": {i: {"exp_avg": torch.randn(100, 100), "step": torch.tensor(float(i))} for i in range(3)}, "lr": 0.25, "groups": [{"betas": (0.9, 0.99)}]},
            "optimist": torch.arange(5), "epoch": 3}


def save_dcp(path, threads):
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    state = dcp_state(torch)
    dcp.save(state, storage_writer=dcp.FileSystemWriter(path, thread_count=threads), no_dist=True)
    return torch, dcp, state


def same_metadata(old, new, prefix):
    """All of it but the names that are dropped."""
    def without(names):
        return {k: v for k, v in names.items() if not (k if isinstance(k, str) else k.fqn).startswith(prefix)}
    assert vars(new) == {k: without(v) if k in ("state_dict_metadata", "planner_data", "storage_data") else v for k, v in vars(old).items()}


@pytest.mark.parametrize("prefix", ["optim.", "model.", "optim", "epoch"])
@pytest.mark.parametrize("where", ["mounted", "at rest"])
@pytest.mark.parametrize("threads", [1, 4])
def test_dcp_loads_what_is_left(mount, store, scratch, commit, ckptfs, threads, where, prefix):
    torch, dcp, state = save_dcp(scratch / "made/state", threads)
    put(mount, commit, scratch / "made")
    before, was = trees.files(mount / "1000"), names(ckptfs, mount)
    old = pickle.loads((mount / "1000/state/.metadata").read_bytes())
    if where == "at rest":
        mount.umount()
    ckptfs("rm", "--arrays", prefix, store if where == "at rest" else mount.path, "1000")
    if where == "at rest":
        mount.start()
    after = trees.files(mount / "1000")
    assert names(ckptfs, mount) == {n for n in was if not n.startswith(prefix)}
    assert {p for p in after if after[p] != before[p]} == {"state/.metadata"}
    new = pickle.loads((mount / "1000/state/.metadata").read_bytes())
    same_metadata(old, new, prefix)
    left = {f"state/{i.relative_path}" for i in new.storage_data.values()}
    assert set(after) - {"state/.metadata"} == left and set(before) - set(after) == {f"state/{i.relative_path}" for i in old.storage_data.values()} - left
    want = {n: torch.zeros_like(v) if isinstance(v, torch.Tensor) else None for n, v in flat(torch, state).items() if not n.startswith(prefix)}
    dcp.load(want, checkpoint_id=mount.path / "1000/state", no_dist=True)
    for name, value in flat(torch, state).items():
        if not name.startswith(prefix):
            assert torch.equal(want[name], value) if isinstance(value, torch.Tensor) else want[name] == value
    check(mount, ckptfs, before)


def flat(torch, value, name=""):
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in flat(torch, inner, f"{name}.{key}" if name else str(key)).items()}
    if isinstance(value, list):
        return {k: v for i, inner in enumerate(value) for k, v in flat(torch, inner, f"{name}.{i}").items()}
    return {name: value}


def test_dcp_in_steps_of_one_array(mount, scratch, commit, ckptfs):
    """Opcodes that are shared move each time to the next one that needs them."""
    torch, dcp, state = save_dcp(scratch / "made", 2)
    put(mount, commit, scratch / "made")
    for name in sorted(names(ckptfs, mount))[:-2]:
        old = pickle.loads((mount / "1000/.metadata").read_bytes())
        ckptfs("rm", "--arrays", name, mount.path, "1000")
        same_metadata(old, pickle.loads((mount / "1000/.metadata").read_bytes()), name)
    assert ckptfs.json("check", mount.path, "1000")["findings"] == []


def test_killed_while_it_writes_dcp_it_has_changed_nothing(mount, store, scratch, commit, ckptfs):
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    dcp.save({f"a.{i}": torch.ones(2) for i in range(1000)} | {"b": torch.ones(2)}, storage_writer=dcp.FileSystemWriter(scratch / "made"), no_dist=True)
    put(mount, commit, scratch / "made")
    killed(mount, store, ckptfs, "b", 20)
    ckptfs("rm", "--arrays", "b", mount.path, "1000")
    assert "b" not in names(ckptfs, mount) and len(names(ckptfs, mount)) == 1000
