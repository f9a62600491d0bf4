"""Whole arrays of DeepSpeed's ZeRO: the weights and the optimizer's states, whose elements lie as flat ranges over the files of the ranks."""

import importlib.util
import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from support.catalog import catalog, read, same

torch = pytest.importorskip("torch")
from support.zero import STATES, Zero, parameters  # noqa: E402

torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(240)

TWO_GROUPS = ({"a.weight": (5, 7), "a.bias": (3,), "scale": ()}, {"b.weight": (4, 3, 2), "b.one": (1, 1), "b.long": (101,)})


def groups(shapes=TWO_GROUPS):
    return [parameters(group, seed) for seed, group in enumerate(shapes)]


def extras():
    frozen = {name: p.bfloat16() for name, p in parameters({"frozen.weight": (3, 5), "frozen.one": (1,)}, 7).items()}
    return {"frozen": frozen, "buffers": {"norm.mean": torch.arange(6.0)}, "shared": {"head.weight": "a.weight", "tied": "frozen.weight"}}


def joined(top, files, tree):
    found = catalog(top, *files)
    assert not found["faults"], found["faults"]
    return {a["name"]: a for a in found["arrays"] if a["tree"] == tree}, [a for a in found["arrays"] if a["tree"] != tree]


def as_numpy(tensor):
    import ml_dtypes

    return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def check(top, names, want):
    assert set(names) == set(want)
    for name, tensor in want.items():
        assert names[name]["format"] == "deepspeed"
        assert same(read(top, names[name]), as_numpy(tensor)), name


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_every_element_is_where_its_rank_has_it(tmp_path, stage, world):
    zero = Zero(groups(), stage, world, **extras())
    files = zero.write(tmp_path / "global_step3")
    names, others = joined(tmp_path, ["global_step3/" + f for f in files], "global_step3")
    check(tmp_path, names, zero.want)
    # The ranks' parts are no arrays of their own: nothing of them is read twice.
    left = {a["name"].split(".")[0] for a in others if not a["name"].endswith((".step", ".count"))}
    assert left == {"module"} and sum(a["name"].endswith(".count") for a in others) == 2 * world


@pytest.mark.parametrize("how", [{"lean": False}, {"elastic": True}, {"bf16": True}, {"zipped": False}], ids=str)
def test_forms_of_the_optimizers_states(tmp_path, how):
    zero = Zero(groups(), 2, 3)
    files = zero.write(tmp_path, **how)
    check(tmp_path, joined(tmp_path, files, ".")[0], zero.want)


def test_groups_of_stage_3_may_end_within_a_parameter(tmp_path):
    zero = Zero(groups(), 3, 2)
    files = zero.write(tmp_path, recut=[11, 12, 50])
    check(tmp_path, joined(tmp_path, files, ".")[0], zero.want)


def test_parameters_without_elements_and_groups_without_parameters(tmp_path):
    zero = Zero([parameters({"none": (0, 4), "w": (3, 3), "empty": (0,)}), {}], 1, 4)
    files = zero.write(tmp_path)
    check(tmp_path, joined(tmp_path, files, ".")[0], zero.want)


def test_each_model_parallel_rank_is_a_tree(tmp_path):
    ranks = [Zero([parameters({"w": (4, 5)}, mp)], 1, 2) for mp in range(2)]
    files = [f for mp, zero in enumerate(ranks) for f in zero.write(tmp_path, mp=mp)]
    found = catalog(tmp_path, *files)
    for mp, zero in enumerate(ranks):
        check(tmp_path, {a["name"]: a for a in found["arrays"] if a["tree"] == f"mp_rank_{mp:02}"}, zero.want)


def test_a_model_without_zero_has_its_own_arrays_only(tmp_path):
    torch.save({"module": {"w": torch.ones(3)}, "param_shapes": None, "optimizer": {}}, tmp_path / "mp_rank_00_model_states.pt")
    found = catalog(tmp_path, "mp_rank_00_model_states.pt")
    assert [(a["tree"], a["name"]) for a in found["arrays"]] == [("mp_rank_00_model_states.pt", "module.w")] and not found["faults"]


# --- What does not add up ---------------------------------------------------------------------------------------------------


def whys(top, files, tree="."):
    found = catalog(top, *files)
    return {a["name"]: a["why"] for a in found["arrays"] if a["tree"] == tree}, found


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("lost", [0, 1, 3])
def test_the_file_of_a_rank_is_missing(tmp_path, stage, lost):
    zero = Zero([parameters({"one": (8, 8), "two": (8, 8), "three": (8, 8), "four": (8, 8)})], stage, 4)
    files = [f for f in zero.write(tmp_path) if f != f"zero_pp_rank_{lost}_mp_rank_00_optim_states.pt"]
    why, found = whys(tmp_path, files)
    names = list(zero.groups[0])
    hit = names if stage == 3 else [names[lost]]
    for name, reason in why.items():
        assert reason == ("the file of a piece is missing" if name.split(".")[0] in hit else None), name
    # All that is there can still be reached.
    parts = [a for a in found["arrays"] if a["name"].startswith("optimizer_state_dict.") and a["shape"] == [64]]
    assert len(parts) == 3 * 3 and not any(a["why"] for a in parts)
    whole = {a["name"]: a for a in found["arrays"] if a["tree"] == "." and not a["why"]}
    for name, array in whole.items():
        assert same(read(tmp_path, array), zero.want[name].numpy())


def states(content):
    return content["optimizer_state_dict"]


def test_where_a_part_begins_is_not_guessed(tmp_path):
    """Of a small group most parts are shorter than a full one: without the first, nothing says where the second begins."""
    zero = Zero([parameters({"one": (1,), "two": (2,)})], 2, 4)
    files = [f for f in zero.write(tmp_path) if f != "zero_pp_rank_0_mp_rank_00_optim_states.pt"]
    why, _ = whys(tmp_path, files)
    assert set(why.values()) == {"the file of a piece is missing"}


def shorter(name, content):
    if name.startswith("zero_pp_rank_1_") and "_optim_" in name:
        for key in ("single_partition_of_fp32_groups", "fp32_flat_groups"):
            if key in states(content):
                states(content)[key][0] = states(content)[key][0][:-20].clone()


@pytest.mark.parametrize("stage", [2, 3])
def test_a_state_that_is_shorter_than_the_weights_is_the_reason(tmp_path, stage):
    def change(name, content):
        if name.startswith("zero_pp_rank_1_") and "_optim_" in name:
            base = states(content)["optimizer_state_dict" if stage == 3 else "base_optimizer_state"]["state"]
            base[0]["exp_avg"] = base[0]["exp_avg"][:5].clone()

    zero = Zero([parameters({"one": (8, 8), "two": (8, 8)})], stage, 2)
    why, _ = whys(tmp_path, zero.write(tmp_path, change=change))
    assert {name for name, reason in why.items() if reason} == ({"two.exp_avg"} if stage == 2 else {"one.exp_avg", "two.exp_avg"})


def longer(name, content):
    for key in ("single_partition_of_fp32_groups", "fp32_flat_groups"):
        if key in content.get("optimizer_state_dict", {}):
            states(content)[key][0] = torch.cat([states(content)[key][0], torch.ones(40)])


def larger(name, content):
    if "_model_" in name:
        content["param_shapes"][0]["a.weight"] = torch.Size([50, 7])


def other_type(name, content):
    if name.startswith("zero_pp_rank_1_") and "_optim_" in name:
        for key in ("single_partition_of_fp32_groups", "fp32_flat_groups"):
            if key in states(content):
                states(content)[key][0] = states(content)[key][0].double()


def strided(name, content):
    if "_optim_" in name:
        for key in ("single_partition_of_fp32_groups", "fp32_flat_groups"):
            if key in states(content):
                states(content)[key][0] = torch.stack([states(content)[key][0]] * 2, 1)[:, 0]


def huge(name, content):
    if "_model_" in name:
        content["param_shapes"][0]["a.bias"] = torch.Size([2**31, 2**31 - 1])
        content["param_shapes"][0]["scale"] = torch.Size([2**31, 2**31 - 1])
        content["param_shapes"][0]["a.weight"] = torch.Size([2**31, 2**31 - 1])


@pytest.mark.parametrize("stage", [1, 3])
@pytest.mark.parametrize("change", [shorter, longer, larger, other_type, strided, huge], ids=lambda c: c.__name__)
def test_sizes_that_do_not_add_up_are_a_reason(tmp_path, stage, change):
    zero = Zero(groups(), stage, 2)
    why, found = whys(tmp_path, zero.write(tmp_path, change=change))
    weights = {name for group in zero.groups for name in group}
    assert any(why[name] for name in weights) and set(why) <= set(zero.want), "all of them are listed, and one has a reason"
    parts = [a for a in found["arrays"] if "partition_of_fp32" in a["name"] or "fp32_flat_groups" in a["name"]]
    assert len(parts) == 4, "the ranks' parts can still be reached"
    for array in found["arrays"]:
        if array["tree"] == "." and not array["why"]:
            assert same(read(tmp_path, array), zero.want[array["name"]].numpy()), "an array that can be read is the right one"


@pytest.mark.parametrize("count", [2**31 - 1, 2**40, -1, [], "2"], ids=str)
def test_ranks_beyond_all_reason(tmp_path, count):
    def change(name, content):
        if "_optim_" in name:
            states(content)["partition_count"] = count
        else:
            content["dp_world_size"] = count

    for stage in (2, 3):
        zero = Zero(groups(), stage, 2)
        files = [f"{stage}/{name}" for name in zero.write(tmp_path / str(stage), change=change)]
        why, _ = whys(tmp_path, files, str(stage))
        assert set(why) >= {name for group in zero.groups for name in group}
        assert all(why.values()) if count == 2**31 - 1 else not any(why.values()), "where they do not say it, the files do"


def test_files_of_a_save_before_are_told(tmp_path):
    zero = Zero(groups(), 2, 2)
    Zero(groups(), 2, 4).write(tmp_path)
    zero.write(tmp_path)
    found = catalog(tmp_path, *sorted(f.name for f in tmp_path.iterdir()))
    assert len(found["faults"]) == 2 and all("none of its 2 ranks" in f[2] for f in found["faults"])
    check(tmp_path, {a["name"]: a for a in found["arrays"] if a["tree"] == "."}, zero.want)


def test_two_files_of_one_rank_are_told(tmp_path):
    zero = Zero(groups(), 2, 2)
    files = sorted({*zero.write(tmp_path), *zero.write(tmp_path, bf16=True)})
    why, found = whys(tmp_path, files)
    assert not why and [f[1] for f in found["faults"]] == ["zero_pp_rank"]


def test_without_the_model_states_nothing_has_a_name(tmp_path):
    zero = Zero(groups(), 3, 2)
    files = [f for f in zero.write(tmp_path) if f != "zero_pp_rank_0_mp_rank_00_model_states.pt"]
    why, found = whys(tmp_path, files)
    assert not why and [f[1] for f in found["faults"]] == ["model_states"]


@pytest.mark.parametrize("shapes", [[3], [{"w": 3}], [{"w": (-1,)}], [{5: (3,)}], {"w": "x"}, "x", [{"w": (1,) * 40}], [{"w\0": (3,)}]], ids=str)
def test_shapes_that_are_none(tmp_path, shapes):
    def change(name, content):
        if "_model_" in name:
            content["param_shapes"] = shapes

    zero = Zero([parameters({"w": (3,)})], 1, 2)
    why, found = whys(tmp_path, zero.write(tmp_path, change=change))
    assert not any(r is None for r in why.values())
    assert {f[1] for f in found["faults"]} <= {"param_shapes", "model_states"} and (found["faults"] or shapes == "x")
    assert any(a["name"] == "module.w" and not a["why"] for a in found["arrays"]), "the file's own arrays are there"


# --- DeepSpeed's own script --------------------------------------------------------------------------------------------------


def script(monkeypatch):
    """zero_to_fp32.py as it is; of DeepSpeed it needs names of keys, and a logger."""
    top = os.environ.get("DEEPSPEED_SOURCE")
    if not top:
        spec = importlib.util.find_spec("deepspeed") if "deepspeed" not in sys.modules or sys.modules["deepspeed"].__spec__ else None
        top = Path(spec.origin).parents[1] if spec and spec.origin else None
    if not top:
        pytest.skip("DeepSpeed is not installed, and DEEPSPEED_SOURCE names no copy of it")
    pytest.importorskip("tqdm")

    def load(name, path):
        spec = importlib.util.spec_from_file_location(name, Path(top) / path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    for name in ("deepspeed.utils", "deepspeed.checkpoint"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["deepspeed.utils"].logger = None
    load("deepspeed.checkpoint.constants", "deepspeed/checkpoint/constants.py")
    return load("zero_to_fp32", "deepspeed/utils/zero_to_fp32.py")


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeeds_own_script_makes_the_same(tmp_path, monkeypatch, stage, world):
    zero = Zero(groups(), stage, world, **extras())
    files = zero.write(tmp_path)
    made = script(monkeypatch).get_fp32_state_dict_from_zero_checkpoint(str(tmp_path.parent), tmp_path.name)
    names = joined(tmp_path, files, ".")[0]
    weights = {name for name in names if not name.endswith(STATES)}
    assert set(made) == weights
    for name, tensor in made.items():
        assert np.array_equal(read(tmp_path, names[name]), as_numpy(tensor)), name
