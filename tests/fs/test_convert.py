"""convert: arrays of a step become a new step by rules, against NumPy's reference, bit for bit."""

import hashlib
import json
import re
import subprocess

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

pytestmark = pytest.mark.timeout(120)

LAYERS, HEADS, GROUPS, WIDTH = 12, 8, 2, 4  # grouped queries: 4 heads to a group
HIDDEN, INNER, WORDS = HEADS * WIDTH, 48, 50
PER = HEADS // GROUPS


def llama(dtype=np.float32):
    """Made up, under the names that Hugging Face's Llama has."""
    dice = np.random.default_rng(11)
    shapes = {"model.embed_tokens.weight": (WORDS, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (WORDS, HIDDEN)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        shapes |= {at + "input_layernorm.weight": (HIDDEN,), at + "post_attention_layernorm.weight": (HIDDEN,), at + "self_attn.q_proj.weight": (HIDDEN, HIDDEN), at + "self_attn.k_proj.weight": (GROUPS * WIDTH, HIDDEN),
                   at + "self_attn.v_proj.weight": (GROUPS * WIDTH, HIDDEN), at + "self_attn.o_proj.weight": (HIDDEN, HIDDEN), at + "mlp.gate_proj.weight": (INNER, HIDDEN), at + "mlp.up_proj.weight": (INNER, HIDDEN), at + "mlp.down_proj.weight": (HIDDEN, INNER)}
    return {name: dice.standard_normal(shape, np.float32).astype(dtype) for name, shape in shapes.items()}


def to_megatron():
    rules = []
    for i in range(LAYERS):
        hf, mg = f"model.layers.{i}.", f"decoder.layers.{i}."
        names = [f"{hf}self_attn.{x}_proj.weight" for x in "qkv"]
        qkv = f"{mg}self_attention.linear_qkv.weight"
        rules += [{"reshape": names[0], "shape": [GROUPS, PER * WIDTH, HIDDEN]}, {"reshape": names[1], "shape": [GROUPS, WIDTH, -1]}, {"reshape": names[2], "shape": [GROUPS, WIDTH, -1]},
                  {"concat": names, "axis": 1, "to": qkv}, {"reshape": qkv, "shape": [-1, HIDDEN]},
                  {"concat": [f"{hf}mlp.gate_proj.weight", f"{hf}mlp.up_proj.weight"], "axis": 0, "to": f"{mg}mlp.linear_fc1.weight"}]
    return rules + [{"rename": [f"^model\\.layers\\.([0-9]+)\\.{a}$", f"decoder.layers.\\1.{b}"]} for a, b in NAMES.items()] + [
        {"rename": ["^model\\.embed_tokens\\.", "embedding.word_embeddings."]}, {"rename": ["^model\\.norm\\.", "decoder.final_layernorm."]}, {"rename": ["^lm_head\\.", "output_layer."]}]


NAMES = {"input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight", "post_attention_layernorm.weight": "mlp.linear_fc1.layer_norm_weight", "self_attn.o_proj.weight": "self_attention.linear_proj.weight",
         "mlp.down_proj.weight": "mlp.linear_fc2.weight"}


def to_hugging_face():
    rules = []
    for i in range(LAYERS):
        hf, mg = f"model.layers.{i}.", f"decoder.layers.{i}."
        names = [f"{hf}self_attn.{x}_proj.weight" for x in "qkv"]
        qkv = f"{mg}self_attention.linear_qkv.weight"
        rules += [{"reshape": qkv, "shape": [GROUPS, (PER + 2) * WIDTH, HIDDEN]}, {"split": qkv, "axis": 1, "into": names, "sizes": [PER * WIDTH, WIDTH, WIDTH]}, {"reshape": f"{hf}self_attn.?_proj.weight", "shape": [-1, HIDDEN]},
                  {"split": f"{mg}mlp.linear_fc1.weight", "axis": 0, "into": [f"{hf}mlp.gate_proj.weight", f"{hf}mlp.up_proj.weight"]}]
    return rules + [{"rename": [f"^decoder\\.layers\\.([0-9]+)\\.{b}$", f"model.layers.\\1.{a}"]} for a, b in NAMES.items()] + [
        {"rename": ["embedding.word_embeddings", "model.embed_tokens"]}, {"rename": ["decoder.final_layernorm", "model.norm"]}, {"rename": ["^output_layer", "lm_head"]}]


def megatron(model):
    """The arrays that to_megatron() is to make, by NumPy."""
    made = {"embedding.word_embeddings.weight": model["model.embed_tokens.weight"], "decoder.final_layernorm.weight": model["model.norm.weight"], "output_layer.weight": model["lm_head.weight"]}
    for i in range(LAYERS):
        hf, mg = f"model.layers.{i}.", f"decoder.layers.{i}."
        q, k, v = (model[f"{hf}self_attn.{x}_proj.weight"].reshape(GROUPS, -1, HIDDEN) for x in "qkv")
        made[f"{mg}self_attention.linear_qkv.weight"] = np.concatenate([q, k, v], axis=1).reshape(-1, HIDDEN)
        made[f"{mg}mlp.linear_fc1.weight"] = np.concatenate([model[f"{hf}mlp.gate_proj.weight"], model[f"{hf}mlp.up_proj.weight"]])
        made |= {mg + b: model[hf + a] for a, b in NAMES.items()}
    return made


SCANNED = {"input_layernorm.weight": "pre_self_attention_layer_norm.scale", "self_attn.q_proj.weight": "self_attention.query.kernel", "mlp.down_proj.weight": "mlp.wo.kernel"}


def to_maxtext():
    """Layers one behind the other on axis 1, as MaxText scans them; kernels are transposed, queries by heads."""
    rules = [{"drop": f"**.{x}"} for x in ("k_proj.weight", "v_proj.weight", "o_proj.weight", "gate_proj.weight", "up_proj.weight", "post_attention_layernorm.weight")]
    rules += [{"transpose": "**.*_proj.weight", "axes": [1, 0]}, {"reshape": "**.q_proj.weight", "shape": [HIDDEN, HEADS, WIDTH]}]
    return rules + [{"stack": f"model.layers.*.{a}", "axis": 1, "to": f"params.decoder.layers.{b}"} for a, b in SCANNED.items()]


def from_maxtext():
    rules = [{"unstack": f"params.decoder.layers.{b}", "axis": 1, "to": "model.layers.{}." + a} for a, b in SCANNED.items()]
    return rules + [{"reshape": "**.q_proj.weight", "shape": [HIDDEN, -1]}, {"transpose": "**.*_proj.weight", "axes": [-1, -2]}]


def maxtext(model):
    def kernel(name, array):
        array = array.T if "proj" in name else array
        return array.reshape(HIDDEN, HEADS, WIDTH) if "q_proj" in name else array

    made = {f"params.decoder.layers.{b}": np.stack([kernel(a, model[f"model.layers.{i}.{a}"]) for i in range(LAYERS)], axis=1) for a, b in SCANNED.items()}
    return made | {name: array for name, array in model.items() if ".layers." not in name}


@pytest.fixture
def convert(ckptfs, scratch, store):
    def run(old, new, rules, *words, at=store, check=True):
        (scratch / "rules.json").write_text(rules if isinstance(rules, str) else json.dumps(rules))
        return ckptfs("convert", at, old, new, "--map", scratch / "rules.json", *words, check=check)

    return run


@pytest.fixture
def save(mount, commit):
    def write(name, arrays, form="safetensors"):
        top = mount / name
        top.mkdir()
        if form == "torch":
            torch.save({n: torch.from_numpy(a.copy()) for n, a in arrays.items()}, top / "model.pt")
        else:
            save_file(arrays, top / "model.safetensors", metadata={"format": "pt"})
        commit(top)

    return write


@pytest.fixture
def load(ckptfs, store, scratch):
    def read(step):
        ckptfs("get", store, step, scratch / step)
        return load_file(scratch / step / "model.safetensors")

    return read


def same(found, want):
    assert sorted(found) == sorted(want)
    for name, array in want.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        assert found[name].tobytes() == np.ascontiguousarray(array).tobytes(), name


@pytest.mark.parametrize("where", ["mounted", "at rest", "packed"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["f32", "bf16"])
def test_llama_to_megatron_and_back(mount, store, ckptfs, save, load, convert, scratch, where, dtype):
    model = llama(dtype)
    save("hf", model)
    if where != "mounted":
        mount.umount()
    if where == "packed":
        ckptfs("cool", store, "hf")
    assert convert("hf", "other", to_megatron()).stderr == ""
    same(load("other"), megatron(model))
    assert convert("other", "again", to_hugging_face()).stderr == ""
    same(load("again"), model)
    ckptfs("get", store, "hf", scratch / "hf")
    before, after = ((scratch / step / "model.safetensors").read_bytes() for step in ("hf", "again"))
    assert hashlib.sha256(before).digest() == hashlib.sha256(after).digest()
    assert ckptfs("diff", "--arrays", store, "hf", "again").returncode == 0
    assert ckptfs.json("verify", store)["bad"] == []


@pytest.mark.parametrize("form", ["safetensors", "torch"])
def test_layers_are_stacked_in_the_order_of_their_numbers(save, load, convert, form):
    model = llama()
    save("hf", model, form)
    convert("hf", "scanned", to_maxtext(), "-f", "safetensors")
    want = maxtext(model)
    same(load("scanned"), want)
    convert("scanned", "back", from_maxtext())
    same(load("back"), {name: array for name, array in model.items() if ".layers." not in name or name.split(".", 3)[3] in SCANNED})


def test_each_rule_does_what_numpy_does(save, load, convert, ckptfs, store):
    dice = np.random.default_rng(3)
    save("1", {"w": dice.standard_normal((6, 4, 5), np.float32), "ids": np.arange(12, dtype=np.int64).reshape(3, 4), "a.0": np.ones(3, np.float16), "a.1": np.zeros(3, np.float16), "gone": np.ones(1), "d": dice.standard_normal(7)})
    was = load("1")
    w, ids, d = was["w"], was["ids"], was["d"]
    convert("1", "2", [
        {"drop": "gone"}, {"transpose": "w", "axes": [2, 0, 1]}, {"split": "w", "axis": -2, "into": ["w.x", "w.y", "w.z"], "sizes": [1, 0, 5]}, {"pad": "ids", "shape": [3, 6]},
        {"cast": "**", "dtype": "bfloat16"}, {"stack": "a.*", "axis": -1, "to": "a"}, {"rename": ["(a|i)(d?)", "<\\2\\1\\0\\\\>"]}, {"reshape": "d", "shape": [7, 1, 1]}])
    t = w.transpose(2, 0, 1).astype(ml_dtypes.bfloat16)
    same(load("2"), {"w.x": t[:, :1], "w.y": t[:, 1:1], "w.z": t[:, 1:], "<diid\\>s": np.pad(ids, [(0, 0), (0, 2)]),
                     "<aa\\>": np.stack([np.ones(3), np.zeros(3)], axis=-1).astype(ml_dtypes.bfloat16), "d": d.astype(ml_dtypes.bfloat16).reshape(7, 1, 1)})
    said = json.loads(convert("1", "3", [{"rename": ["nosuch", "x"]}], "--only", "w", "--not", "d", "--dtype", "float16", "-f", "npz", "--json").stdout)
    assert (said["step"], said["format"], said["arrays"]) == ("3", "npz", 1)
    [row] = ckptfs.json("arrays", store, "3")
    assert (row["name"], row["dtype"], row["shape"]) == ("w", "float16", [6, 4, 5])


def test_an_array_whose_name_repeats_is_called_with_its_tree(mount, commit, convert, load):
    top = mount / "1"
    top.mkdir()
    for i in range(2):
        save_file({"w": np.full(3, i, np.float32), f"alone{i}": np.zeros(2, np.float32)}, top / f"rank{i}.safetensors")
    commit(top)
    convert("1", "2", [{"concat": ["rank1.safetensors:w", "rank0.safetensors:w"], "axis": 0, "to": "w"}, {"concat": ["rank0.safetensors:alone0", "alone1"], "axis": 0, "to": "alone"}])
    same(load("2"), {"w": np.array([1, 1, 1, 0, 0, 0], np.float32), "alone": np.zeros(4, np.float32)})


BAD = [
    ("[", "no JSON: line 1"), ("{}", "rules are a list"), ('[{"drop": "a"}, 7]', "rule 2: a rule is an object"), ('[{"drop": "a", "drop": "b"}]', "no JSON"), ([{"transposed": "a"}], 'did you mean "transpose"?'), ([{"nosuchrule": 1}], "it names no rule"),
    ([{"drop": 1}], 'rule 1: "drop"'), ([{"transpose": "w"}], 'wants "axes"'), ([{"drop": "w", "axis": 0}], '"drop" has no "axis"'), ([{"rename": ["(", "x"]}], "no extended regular expression"), ([{"rename": ["(w)", "\\2"]}], "has \\2, and the expression 1 groups"),
    ([{"rename": ["w", "\\"]}], "followed by a digit"), ([{"rename": ["((a{90}){90}){90}", "x"]}], "a repetition is behind"), ([{"rename": ["(a*)*?", "x"]}], "a repetition is behind"), ([{"rename": ["a{900}b{101}", "x"]}], "repeats more than 1000 times"), ([{"cast": "w", "dtype": "int8"}], "no floating type"), ([{"unstack": "w", "axis": 0, "to": "w"}], "{} once"),
    ([{"reshape": "w", "shape": [-1, -1]}], "may be -1"), ([{"split": "w", "axis": 0, "into": ["a"], "sizes": [1, 2]}], "as many numbers"), ([{"pad": "w", "shape": [9] * 33}], "32 axes"),
    ([{"split": "layer.weigth", "axis": 0, "into": ["x"]}], 'no array has the name "layer.weigth"; did you mean "layer.weight"?'), ([{"transpose": "nosuch", "axes": []}], 'no array matches "nosuch"'), ([{"transpose": "w", "axes": [0]}], '"w" has 2 axes, and "axes" names 1'),
    ([{"transpose": "w", "axes": [0, 0]}], "an axis twice"), ([{"transpose": "w", "axes": [0, 2]}], 'axis 2 of "w": there are 2'), ([{"reshape": "w", "shape": [5, -1]}], '"w" has the shape [4, 6], of 24 elements: they do not fit into [5, -1]'),
    ([{"split": "w", "axis": 1, "into": ["a", "b", "c", "d"]}], "axis 1 has no 4 equal parts"), ([{"split": "w", "axis": 1, "into": ["a", "b"], "sizes": [3, 4]}], "add up to 7, not 6"), ([{"pad": "w", "shape": [3, 6]}], "none of them smaller"),
    ([{"concat": ["w", "v"], "axis": 0, "to": "x"}], '"w" has the shape [4, 6], and "v" [4, 5]'), ([{"concat": ["v", "half"], "axis": 0, "to": "x"}], "a cast before makes them the same"), ([{"stack": "?", "axis": 0, "to": "x"}], "has the shape"),
    ([{"drop": "v"}, {"rename": ["^w$", "half"]}], 'rule 2 (rename): two arrays have the name "half" then'), ([{"rename": ["^w$", ""]}], 'the new name of "w" is empty'), ([{"cast": "ids", "dtype": "float16"}], 'no floating array matches "ids"'),
    ([{"unstack": "big", "axis": 0, "to": "x{}"}], "more than 1048576 arrays"), ([{"drop": "**"}], "no array is chosen"), ([{"transpose": "w", "axes": [1, 0]}] * 70, "by too many rules"), ([{"pad": "w", "shape": [1 << 40, 1 << 40]}], "2^63 bytes"),
]


@pytest.mark.parametrize("rules, why", BAD, ids=[str(i) for i in range(len(BAD))])
def test_wrong_rules_are_told_and_nothing_is_made(mount, commit, ckptfs, store, convert, rules, why):
    top = mount / "1"
    top.mkdir()
    save_file({"w": np.zeros((4, 6)), "v": np.zeros((4, 5)), "half": np.zeros((4, 5), np.float16), "layer.weight": np.zeros(1), "ids": np.zeros(1, np.int8), "big": np.zeros((1 << 20) + 1, np.int8)}, top / "model.safetensors")
    commit(top)
    done = convert("1", "2", rules, check=False)
    assert done.returncode == 1 and why in done.stderr, done.stderr
    assert done.stderr.startswith("ckptfs: ") and len(done.stderr.splitlines()) <= 2
    assert [row["name"] for row in ckptfs.json("ls", store)] == ["1"] and ckptfs.json("sessions", store) == []


def test_a_name_that_is_taken_needs_force(save, convert, load, ckptfs, store):
    save("1", {"w": np.arange(4.0)})
    rules = [{"rename": ["w", "x"]}]
    assert "--force" in convert("1", "1", rules, check=False).stderr
    convert("1", "1", rules, "--force")
    same(load("1"), {"x": np.arange(4.0)})
    idle = convert("1", "2", [{"rename": ["w", "y"]}, {"drop": "w"}])
    assert [line.split("rules.json: ")[1] for line in idle.stderr.splitlines()] == ['rule 1 (rename): no array matches "w"', 'rule 2 (drop): no array matches "w"']


def test_a_large_transposed_array_is_read_few_times(store, ckptfs, load, scratch):
    """A run of it is a little of each row that is stored: read run by run, all would be read for each."""
    w = np.random.default_rng(2).standard_normal((3000, 2500), np.float32)
    (scratch / "in").mkdir()
    save_file({"w": w}, scratch / "in/model.safetensors")
    (scratch / "rules.json").write_text('[{"transpose": "w", "axes": [1, 0]}]')
    ckptfs("init", store)
    ckptfs("save", store, scratch / "in", "1")
    words = [ckptfs.path, "convert", store, "1", "2", "--map", scratch / "rules.json"]
    done = subprocess.run(["bash", "-c", '"$@" && cat /proc/$$/io', "bash", *words], check=True, capture_output=True, text=True)
    read = int(re.search(r"rchar: (\d+)", done.stdout)[1])
    assert w.nbytes <= read < 8 * w.nbytes
    same(load("2"), {"w": w.T})
