"""Findings: a mount looks into the arrays of each step once it is sealed, and tells of trouble where people and programs look."""

import json

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.numpy import save_file

from support import trees
from support.fixtures import FULL
from support.mounting import wait_until

pytestmark = pytest.mark.timeout(120)

LAYERS = 4
CLEAN = 100 if FULL else 20


def model(seed, **other):
    dice = np.random.default_rng(seed)
    arrays = {f"layers.{i}.weight": dice.standard_normal((130, 140), np.float32) for i in range(LAYERS)}
    arrays["norm"] = dice.standard_normal(40).astype(ml_dtypes.bfloat16)
    arrays["steps"] = np.array([seed])
    return {**arrays, **other}


ON = ["seal=yes", "findings=elements"]


@pytest.fixture
def options(request):
    return getattr(request, "param", ON)


@pytest.fixture
def save(mount, commit):
    def save(number, write):
        top = mount / str(number)
        top.mkdir()
        write(top)
        commit(top)

    return save


@pytest.fixture
def save_model(save):
    return lambda number, **other: save(number, lambda top: save_file(model(number, **other), top / "model.safetensors"))


@pytest.fixture
def found(ckptfs):
    """The findings in a step, once somebody has looked: {kind: count}, and all of it."""
    def wait(where, step):
        row = wait_until(lambda: (r := ckptfs.json("info", where, step)) and r["findings"] and r, 60, f"findings of {step}")
        assert row["healthy"] == row["findings"]["healthy"]
        return row["findings"]["counts"], row["findings"]

    return wait


def lines_of(mount, step):
    return [line for line in mount.errors() if f"\t{step}\t" in line and "in its arrays" in line]


def with_nan(seed):
    array = model(seed)["layers.1.weight"]
    array[3, 4] = np.nan
    return array


def test_arrays_beyond_what_is_read_of_a_step_are_counted(mount, save, found):
    """Some times the bytes of its files, and 256 MiB: a few bytes may be those of many arrays."""
    size, count = 32 << 20, 20
    row = {"dtype": "uint8", "shape": [size], "pieces": [{"file": "raw.bin", "offset": 0, "start": [0], "extent": [size]}]}

    def write(top, arrays):
        (top / "raw.bin").write_bytes(b"\x01" * size)
        (top / "arrays.json").write_text(json.dumps({"arrays": [{"name": f"a{i}", **row} for i in range(arrays)]}))

    save(1, lambda top: write(top, count))
    save(2, lambda top: write(top, 2))
    all_of_it = found(mount.path, 1)[1]
    assert all_of_it["arrays"] == count and all_of_it["looked"] == "elements"
    assert all_of_it["not_read"] == count - 16, "8 times 32 MiB, and 256 MiB, are those of 16 arrays"
    assert "not_read" not in found(mount.path, 2)[1]


def test_clean_steps_have_no_findings(mount, save_model, found, ckptfs):
    for n in range(CLEAN):
        save_model(n)
    for n in range(CLEAN):
        counts, all_of_it = found(mount.path, n)
        assert (counts, all_of_it["healthy"], all_of_it["first"], all_of_it["arrays"]) == ({}, True, [], LAYERS + 2)
        assert all_of_it["looked"] == "elements"
    assert not any("in its arrays" in line for line in mount.errors())
    assert ckptfs("latest", mount.path, "--healthy").stdout.strip() == str(CLEAN - 1)
    text = (mount / ".ckptfs/metrics").read_text()
    assert f"ckptfs_findings_steps_total {CLEAN}\n" in text and "ckptfs_findings_trouble_steps_total 0\n" in text


def test_trouble_is_told_at_the_step_that_has_it(mount, store, save_model, found, ckptfs):
    """A NaN at step 3, a layer that is frozen from step 2 to 4."""
    frozen = model(1)["layers.2.weight"]
    for n in range(1, 7):
        other = {"layers.1.weight": with_nan(n)} if n == 3 else {}
        save_model(n, **other, **({"layers.2.weight": frozen} if n <= 4 else {}))
    expected = {1: {}, 2: {"same": 1}, 3: {"nan": 1, "same": 1}, 4: {"same": 1}, 5: {}, 6: {}}
    assert {n: found(mount.path, n)[0] for n in expected} == expected
    assert found(mount.path, 3)[1]["first"] == [
        "nan model.safetensors:layers.1.weight: 1 of 18200 elements are NaN",
        "same model.safetensors:layers.2.weight: it is as in the step before, and others have changed",
    ]
    assert {row["name"]: row["healthy"] for row in ckptfs.json("ls", mount.path)} == {str(n): n != 3 for n in expected}
    table = {row.split()[0]: row for row in ckptfs("ls", "-l", mount.path).stdout.splitlines()[1:]}
    assert " committed ! " in table["3"] and "!" not in table["2"] + table["4"]
    assert ckptfs("ls", mount.path, "--where", "healthy = false").stdout == "3\n"
    wait_until(lambda: lines_of(mount, 3), what="a line")
    assert len(lines_of(mount, 3)) == 1 and "layers.1.weight" in lines_of(mount, 3)[0] and "ckptfs check" in lines_of(mount, 3)[0]
    assert not any(lines_of(mount, n) for n in expected if n != 3)
    assert "ckptfs_findings_trouble_steps_total 1\n" in (mount / ".ckptfs/metrics").read_text()
    said = ckptfs("info", mount.path, 3).stdout
    assert "healthy        no" in said and "layers.1.weight" in said
    by_headers = ckptfs("check", mount.path, 3, check=False)
    assert by_headers.returncode == 1 and "trouble was found in its elements" in by_headers.stderr
    assert ckptfs("check", mount.path, 3, "--against", 2, check=False).returncode == 1 and ckptfs("check", mount.path, 2).returncode == 0
    rows = ckptfs.json("log", store, "3", "--all")
    assert [row["operation"] for row in rows if row["operation"] != "cool"] == ["findings", "seal", "commit"]
    assert len({v["committed_at"] for v in ckptfs.json("info", store, 3)["versions"]}) == 1, "clients see no change"


def test_latest_and_resolve_pass_over_trouble(mount, store, save_model, found, ckptfs):
    for n in (1, 2, 3):
        save_model(n, **({"layers.1.weight": with_nan(n)} if n > 1 else {}))
    assert not found(mount.path, 3)[1]["healthy"] and not found(mount.path, 2)[1]["healthy"]
    for where in (mount.path, store):
        assert ckptfs("latest", where).stdout == "3\n"
        said = ckptfs("latest", where, "--healthy")
        assert said.stdout == "1\n" and "3 is passed over" in said.stderr and "2 is passed over" in said.stderr
        assert ckptfs.json("resolve", "--run", where)["step"] == "3"
        assert ckptfs.json("resolve", "--run", where, "--healthy")["step"] == "1"
    ckptfs("rm", mount.path, "1")
    none = ckptfs("latest", mount.path, "--healthy", check=False)
    assert (none.returncode, none.stdout) == (1, "") and "no committed step without trouble" in none.stderr
    assert ckptfs.json("resolve", "--run", mount.path, "--healthy", check=False)["mode"] == "scratch"
    assert ckptfs.json("resolve", "--run", mount / "3", "--healthy")["step"] == "3", "it is named"


@pytest.mark.parametrize("options", [["seal=yes", "findings=off"]], indirect=True)
def test_a_step_that_nobody_has_looked_at_is_looked_at_when_it_is_asked_for(mount, save_model, ckptfs, world, store, found):
    for n in (1, 2):
        save_model(n, **({"layers.1.weight": with_nan(n)} if n == 2 else {}))
    ckptfs("wait", mount.path, "--sealed", "2")
    row = ckptfs.json("info", mount.path, 2)
    assert (row["healthy"], row["findings"], row["sealed"]) == (None, None, True)
    assert "healthy        not looked at" in ckptfs("info", mount.path, 2).stdout
    said = ckptfs("latest", mount.path, "--healthy")
    assert said.stdout == "1\n" and "2 is passed over" in said.stderr
    assert ckptfs.json("info", mount.path, 2)["findings"] is None, "nothing is written"
    mount.kill9()
    mount.remount(options=ON)
    assert found(mount.path, 2)[0] == {"nan": 1} and found(mount.path, 1)[0] == {}


@pytest.mark.parametrize("options", [["seal=yes", "findings=headers"]], indirect=True)
def test_headers_alone_when_the_store_says_so(mount, save_model, save, found):
    save_model(1, **{"layers.1.weight": with_nan(1)})
    assert found(mount.path, 1)[1]["looked"] == "headers" and found(mount.path, 1)[0] == {}
    save_model(2, norm=np.zeros(3))
    assert found(mount.path, 2)[0] == {"dtype": 1, "shape": 1}


def test_kill_at_any_moment_leaves_a_step_that_is_looked_at_later(mount, save_model, found, ckptfs):
    for n in range(1, 6):
        save_model(n, **({"layers.1.weight": with_nan(n)} if n % 2 else {}))
        if n > 1:
            wait_until(lambda n=n: ckptfs.json("info", mount.path, n)["sealed"], 60, "the seal")
        mount.kill9()
        mount.remount()
    for n in range(1, 6):
        assert found(mount.path, n)[0] == ({"nan": 1} if n % 2 else {})
        assert [v["event"] for v in ckptfs.json("info", mount.path, n)["versions"]].count("seal") == 2, "looked at once"


@pytest.mark.parametrize("options", [["seal=yes", "findings=off", "hot=0"]], indirect=True)
def test_packed_steps_are_looked_at(mount, save_model, found, ckptfs):
    frozen = model(1)["layers.2.weight"]
    for n in (1, 2):
        save_model(n, **{"layers.2.weight": frozen}, **({"layers.1.weight": with_nan(n)} if n == 2 else {}))
    wait_until(lambda: all(not ckptfs.json("info", mount.path, n)["hot"] for n in (1, 2)), 60, "packs")
    mount.remount(options=[*ON, "hot=0"])
    assert found(mount.path, 2)[0] == {"nan": 1, "same": 1} and found(mount.path, 1)[0] == {}


def test_findings_are_those_of_the_files(mount, save_model, found, ckptfs, commit):
    """Other files are looked at again, other metadata are not; users cannot say findings."""
    save_model(1, **{"layers.1.weight": with_nan(1)})
    assert found(mount.path, 1)[0] == {"nan": 1}
    commit(mount / "1", json.dumps({"metrics": {"loss": 2.5}, "extras": {"findings": {"healthy": True}}}).encode())
    row = ckptfs.json("info", mount.path, 1)
    assert row["metrics"] == {"loss": 2.5} and row["extras"] == {"findings": {"healthy": True}}
    assert row["healthy"] is False and row["findings"]["counts"] == {"nan": 1}
    with pytest.raises(OSError):
        commit(mount / "1", b'{"findings": {"healthy": true}}')
    assert ckptfs.json("info", mount.path, 1)["healthy"] is False and any('no field "findings"' in line for line in mount.errors())
    np.save(mount / "1/more.npy", np.full(9, np.inf))
    counts = wait_until(lambda: (r := ckptfs.json("info", mount.path, 1))["findings"] and "inf" in r["findings"]["counts"] and r, 60, "another look")
    assert counts["findings"]["counts"] == {"nan": 1, "inf": 1} and counts["metrics"] == {"loss": 2.5}
    ckptfs("restore", mount.path, "1@1")
    wait_until(lambda: (r := ckptfs.json("info", mount.path, 1))["findings"] and r["findings"]["counts"] == {"nan": 1}, 60, "a look at the files of before")
    save_file(model(1), mount / "1/model.safetensors")
    commit(mount / "1")
    wait_until(lambda: ckptfs.json("info", mount.path, 1)["healthy"], 60, "a look at the files of another save")


def read_by(pid):
    return int(next(line.split()[1] for line in open(f"/proc/{pid}/io") if line.startswith("rchar:")))


def test_an_edit_beside_arrays_reads_none_of_them_again(mount, save_model, found, ckptfs):
    save_model(1)
    big = np.random.default_rng(2).standard_normal(4 << 20, np.float32)  # 16 MiB
    save_model(2, big=big, **{"layers.1.weight": with_nan(1), "mask": np.full(2000, np.inf, np.float32)})
    counts, first = found(mount.path, 2)
    assert counts["nan"] == counts["inf"] == 1
    digests = {a["name"]: a["digest"] for a in ckptfs.json("arrays", mount.path, 2)}
    assert all(digests.values())

    def edited(edit):
        before, versions = read_by(mount.pid), len(ckptfs.json("info", mount.path, 2)["versions"])
        edit()
        wait_until(lambda: (r := ckptfs.json("info", mount.path, 2))["findings"] and len(r["versions"]) >= versions + 2 and r["sealed"], 60, "another look")
        return read_by(mount.pid) - before

    for edit in (lambda: trees.write(mount / "2/eval.json", b'{"loss": 2}'), lambda: (mount / "2/eval.json").unlink()):
        assert edited(edit) < big.nbytes / 2
        assert found(mount.path, 2) == (counts, first)
        assert {a["name"]: a["digest"] for a in ckptfs.json("arrays", mount.path, 2)} == digests
    assert edited(lambda: np.save(mount / "2/more.npy", np.full(9, np.inf))) >= big.nbytes, "other arrays are there"
    assert found(mount.path, 2)[0] == {**counts, "inf": 2}
    assert edited(lambda: ckptfs("restore", mount.path, "2@1")) < big.nbytes / 2
    assert found(mount.path, 2) == (counts, first)
    ckptfs("cool", mount.path, 2)
    assert edited(lambda: trees.write(mount / "2/eval.json", b'{"loss": 3}')) < big.nbytes / 2
    assert found(mount.path, 2) == (counts, first)


def test_new_modes_keep_findings(mount, save_model, found, ckptfs):
    save_model(1, **{"layers.1.weight": with_nan(1)})
    was = found(mount.path, 1)
    (mount / "1/model.safetensors").chmod(0o640)
    row = wait_until(lambda: (r := ckptfs.json("info", mount.path, 1))["versions"][-1]["event"] == "edit" and r, 60, "the edit's version")
    assert (row["findings"]["counts"], row["findings"]) == was
    assert [v["event"] for v in row["versions"]].count("edit") == 1


def test_looking_makes_one_version_and_no_more(mount, save_model, save, found, ckptfs):
    save_model(1)
    save(2, lambda top: trees.write(top / "data.bin", bytes(range(256)) * 300))
    found(mount.path, 1)
    ckptfs("wait", mount.path, "--sealed", "2")
    save_model(3)
    found(mount.path, 3)
    assert ckptfs.json("info", mount.path, 2)["findings"] is None, "it has no arrays"
    versions = {n: len(ckptfs.json("info", mount.path, n)["versions"]) for n in (2, 3)}
    assert versions == {2: 2, 3: 3}
    mount.remount()
    save_model(4)
    found(mount.path, 4)
    assert {n: len([v for v in ckptfs.json("info", mount.path, n)["versions"] if v["event"] == "seal"]) for n in (1, 2, 3)} == {1: 2, 2: 1, 3: 2}


def test_missing_ranks_and_pieces(mount, save, found, ckptfs):
    def shards(top, ranks):
        for r in range(ranks):
            save_file(model(int(top.name) * 10 + r), top / f"mp_rank_{r:02}.safetensors")

    def named(top, missing=()):
        names = {f"w{i}": f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)}
        for i in (1, 2, 3):
            if i not in missing:
                save_file({f"w{i}": np.random.default_rng(int(top.name) + i).standard_normal(99)}, top / names[f"w{i}"])
        trees.write(top / "model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": names}).encode())

    def pieces(top, name="a.bin"):
        row = {"name": "w", "dtype": "float32", "shape": [10], "pieces": [{"file": "a.bin", "offset": 0, "start": [0], "extent": [10]}]}
        trees.write(top / name, np.arange(10, dtype=np.float32).tobytes())
        trees.write(top / "arrays.json", json.dumps({"arrays": [row]}).encode())

    def distributed(top, lost=False):
        dcp.save({"w": torch.randn(64, generator=torch.Generator().manual_seed(int(top.name)))}, checkpoint_id=str(top / "dcp"), no_dist=True)
        if lost:
            next((top / "dcp").glob("*.distcp")).unlink()

    save(100, lambda top: shards(top, 4))
    save(200, lambda top: shards(top, 3))
    assert found(mount.path, 100)[0] == {} and found(mount.path, 200)[0] == {"gone": LAYERS + 2, "ranks": 1}
    assert found(mount.path, 200)[1]["healthy"], "as after an elastic restart"
    save(300, named)
    save(400, lambda top: named(top, missing=[2]))
    counts, all_of_it = found(mount.path, 400)
    assert counts["missing"] == 1 and not all_of_it["healthy"]
    assert "model-00002-of-00003.safetensors is missing" in wait_until(lambda: lines_of(mount, 400), what="a line")[0]
    save(500, lambda top: pieces(top, "b.bin"))
    counts, all_of_it = found(mount.path, 500)
    assert counts["gap"] == 1 and not all_of_it["healthy"]
    save(600, distributed)
    save(700, lambda top: distributed(top, lost=True))
    assert found(mount.path, 600)[1]["healthy"] and not found(mount.path, 700)[1]["healthy"]
    assert ckptfs("latest", mount.path, "--healthy").stdout == "600\n"


def test_torch_files(mount, save, found):
    def write(top, bad):
        weight = torch.randn(300, 70, generator=torch.Generator().manual_seed(int(top.name))).to(torch.bfloat16)
        if bad:
            weight[1, 2] = float("nan")
            weight[5, 6] = float("inf")
        torch.save({"model": {"weight": weight, "bias": torch.zeros(70)}, "step": int(top.name)}, top / "pytorch_model.bin")

    save(1, lambda top: write(top, False))
    save(2, lambda top: write(top, True))
    assert found(mount.path, 1)[0] == {"zero": 1}
    counts, all_of_it = found(mount.path, 2)
    assert counts == {"nan": 1, "inf": 1, "zero": 1} and not all_of_it["healthy"]
    assert "model.weight: 1 of 21000 elements are NaN" in all_of_it["first"][0]


def test_an_array_that_is_an_object_now_is_gone(mount, save, found):
    def write(top):
        values = {100: [torch.ones(3) * 2, "text"], 200: ["text", "text"], 300: ["text", torch.ones(3) * 3]}[int(top.name)]
        dcp.save(dict(zip("wx", values)), checkpoint_id=str(top / "dcp"), no_dist=True)

    for number in (100, 200, 300):
        save(number, write)
    assert found(mount.path, 100)[0] == {} and found(mount.path, 300)[0] == {}
    counts, all_of_it = found(mount.path, 200)
    assert counts == {"gone": 1}
    assert all_of_it["first"][0].endswith("w: it is an object of the program, and an array in the step before")


def test_what_is_kept_is_bounded(mount, save, found):
    arrays = {f"layer.{i:04}." + "x" * (i % 200): np.full(2, np.nan, np.float32) for i in range(500)}
    save(1, lambda top: save_file(arrays, top / "model.safetensors"))
    counts, all_of_it = found(mount.path, 1)
    assert counts == {"nan": 500} and 0 < len(all_of_it["first"]) <= 16 and sum(map(len, all_of_it["first"])) <= 2048
    assert len(wait_until(lambda: lines_of(mount, 1), what="a line")) == 1 and "500 troubles" in lines_of(mount, 1)[0]
