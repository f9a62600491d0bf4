"""convert --exec and --plugin: a program or shared object of the user's makes the arrays of a new step, and harms nothing when it fails."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save, save_file

pytestmark = pytest.mark.timeout(120)

TREE = Path(__file__).resolve().parents[2]

DOUBLE = """
import sys
import numpy
from safetensors.numpy import load, save
arrays = load(sys.stdin.buffer.read())
sys.stdout.buffer.write(save({name + ".twice": numpy.asarray(array * 2) for name, array in arrays.items()}))
"""

# The reader has the first file, as FIONREAD says, before the second is written.
LATE = """
import fcntl, struct, sys, termios, time
for path in sys.argv[1:]:
    sys.stdout.buffer.write(open(path, "rb").read())
    sys.stdout.buffer.flush()
    while struct.unpack("i", fcntl.ioctl(1, termios.FIONREAD, bytes(4)))[0]:
        time.sleep(0.001)
sys.stdin.buffer.read()
"""

PLUGIN = r"""
#include <ckptfs_convert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ckpt_convert(struct ckpt_convert *c)
{
	const char *how = getenv("HOW");
	char name[64];
	float x[64];

	puts("stdout of a plugin is no stream");
	if (!strcmp(how, "crash"))
		abort();
	if (!strcmp(how, "refuse"))
		return -ERANGE;
	for (size_t i = 0; i < c->count; i++) {
		struct ckpt_convert_array a = c->arrays[i];
		uint64_t flat[1] = {a.bytes / 4};

		snprintf(name, sizeof(name), "%s.flat", a.name);
		a.name = name;
		a.shape = flat;
		a.ndim = 1;
		if (c->add(c, &a))
			return -EINVAL;
	}
	for (size_t i = 0; i < c->count; i++)
		for (uint64_t left = c->arrays[i].bytes; left;) {
			size_t n = left < sizeof(x) ? left : sizeof(x);

			if (c->read(c, x, n))
				return -EIO;
			for (size_t k = 0; k < n / 4; k++)
				x[k] *= 3;
			if (!strcmp(how, "short") && i + 1 == c->count && left <= sizeof(x))
				return 0;
			if (c->write(c, x, n))
				return -EPIPE;
			left -= n;
		}
	if (c->write(c, x, 4) != -ENOSPC || c->read(c, x, 1) != -ENODATA || c->add(c, &c->arrays[0]) != -EBUSY)
		return -EINVAL;
	return 0;
}
"""


@pytest.fixture
def model():
    dice = np.random.default_rng(7)
    return {"a.weight": dice.standard_normal((30, 7), np.float32), "b.weight": dice.standard_normal((1000,), np.float32), "scalar": np.array(3, np.float32)}


@pytest.fixture
def step(store, ckptfs, scratch, model):
    """Step 1 of a store at rest."""
    (scratch / "in").mkdir()
    save_file(model, scratch / "in/model.safetensors")
    ckptfs("init", store)
    ckptfs("save", store, scratch / "in", "1")
    return "1"


@pytest.fixture
def double(scratch):
    (scratch / "double.py").write_text(DOUBLE)
    return f"{sys.executable} {scratch / 'double.py'}"


def arrays_of(ckptfs, store, step, scratch):
    ckptfs("get", store, step, scratch / step)
    return load_file(scratch / step / "model.safetensors")


def same(found, want):
    assert sorted(found) == sorted(want)
    for name, array in want.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape and found[name].tobytes() == array.tobytes(), name


def test_a_program_makes_the_new_step(step, store, ckptfs, scratch, model, double):
    said = ckptfs.json("convert", store, step, "2", "--exec", double)
    assert (said["step"], said["arrays"], said["format"]) == ("2", 3, "safetensors")
    same(arrays_of(ckptfs, store, "2", scratch), {name + ".twice": np.asarray(array * 2) for name, array in model.items()})


def test_rules_come_before_the_program_and_dtype_after_it(step, store, ckptfs, scratch, model, double):
    (scratch / "rules.json").write_text(json.dumps([{"transpose": "a.weight", "axes": [1, 0]}, {"rename": ["weight", "w"]}]))
    ckptfs("convert", store, step, "2", "--map", scratch / "rules.json", "--not", "scalar", "--exec", double, "--dtype", "bfloat16")
    want = {"a.w.twice": model["a.weight"].T.copy() * 2, "b.w.twice": model["b.weight"] * 2}
    same(arrays_of(ckptfs, store, "2", scratch), {name: array.astype(ml_dtypes.bfloat16) for name, array in want.items()})


def test_the_format_of_the_arrays_stays_that_of_the_new_step(mount, commit, store, ckptfs, scratch, model):
    top = mount / "1"
    top.mkdir()
    torch.save({name: torch.from_numpy(array.copy()) for name, array in model.items()}, top / "model.pt")
    commit(top)
    assert ckptfs.json("convert", mount.path, "1", "2", "--exec", "cat")["format"] == "torch"
    found = torch.load(mount / "2/model.pt", weights_only=True)
    same({name: array.numpy() for name, array in found.items()}, model)
    ckptfs("convert", mount.path, "1", "3", "--exec", "cat", "-f", "npy")
    same({p.name[:-4]: np.load(p) for p in (mount / "3").glob("*.npy")}, model)


def test_the_verb_runs_the_program_and_the_daemon_does_not(mount, commit, ckptfs, model):
    top = mount / "1"
    top.mkdir()
    save_file(model, top / "model.safetensors")
    commit(top)
    done = ckptfs("convert", mount.path, "1", "2", "--exec", "tr '\\0' ' ' < /proc/$PPID/cmdline >&2; cat")
    assert "convert" in done.stderr and str(mount.path) in done.stderr and " mount " not in done.stderr
    same(load_file(mount / "2/model.safetensors"), model)


def test_the_input_may_stay_unread_and_output_may_come_first(step, store, ckptfs, scratch):
    (scratch / "in").mkdir(exist_ok=True)
    save_file({"big": np.zeros(1 << 20)}, scratch / "in/model.safetensors")
    ckptfs("save", store, scratch / "in", "big")
    (scratch / "other").write_bytes(save({"x": np.arange(1 << 20)}))
    ckptfs("convert", store, "big", "2", "--exec", f"cat {scratch}/other")
    ckptfs("convert", store, "big", "3", "--exec", f"cat {scratch}/other; cat >/dev/null")
    for name in "23":
        same(arrays_of(ckptfs, store, name, scratch), {"x": np.arange(1 << 20)})


def test_a_short_header_may_come_long_before_its_data(step, store, ckptfs, scratch):
    text = header('{"x":' + entry() + "}")
    assert len(text) < 64
    (scratch / "header").write_bytes(text)
    data = np.array([1, 2], np.float32)
    (scratch / "data").write_bytes(data.tobytes())
    (scratch / "late.py").write_text(LATE)
    ckptfs("convert", store, step, "2", "--exec", f"exec {sys.executable} {scratch}/late.py {scratch}/header {scratch}/data", "--timeout", "60s")
    same(arrays_of(ckptfs, store, "2", scratch), {"x": data})
    done = ckptfs("convert", store, step, "3", "--exec", f"cat {scratch}/header; cat >/dev/null", check=False)
    assert done.returncode == 1 and "its output ends after" in done.stderr, done.stderr


def test_a_process_that_is_left_behind_holds_nothing_up(step, store, ckptfs, scratch, model):
    began = time.monotonic()
    ckptfs("convert", store, step, "2", "--exec", f"sleep 600 & echo $! > {scratch}/pid; cat")
    assert time.monotonic() - began < 60
    same(arrays_of(ckptfs, store, "2", scratch), model)
    gone(int((scratch / "pid").read_text()))


def gone(pid):
    for _ in range(1000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
    raise AssertionError(f"{pid} lives")


def header(text, data=b""):
    return len(text).to_bytes(8, "little") + text.encode() + data


def entry(dtype="F32", shape="[2]", end=8):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{end}]}}'


BAD = {
    "nothing": ("cat >/dev/null", "is empty"),
    "fails": ("cat; exit 3", "ended with status 3"),
    "tells why": ("echo 'cannot divide' >&2; exit 1", "cannot divide"),
    "killed": ("kill -9 $$", "was killed by signal 9"),
    "absent": ("/nosuch/program", "ended with status 127"),
    "text": ("yes", "does not begin with a header"),
    "zeros": ("cat /dev/zero", "does not begin with a header"),
    "cut header": ("head -c 20", "ends within its header"),
    "cut": ("head -c -1", "its output ends after"),
    "longer": ("cat; echo more", "longer than its header says"),
    "endless": ("cat; cat /dev/zero", "longer than its header says"),
    "waits": ("cat; sleep 600", "was not done after 1s"),
    "reads nothing": ("sleep 600", "was not done after 1s"),
    "no arrays": (header("{}"), "has no array"),
    "wrong shape": (header('{"x":' + entry(shape="[3]") + "}", bytes(8)), "does not begin with a header"),
    "no dtype": (header('{"x":' + entry(dtype="F7") + "}", bytes(8)), "x: its dtype is not known"),
    "half bytes": (header('{"x":' + entry("F4", "[16]") + "}", bytes(8)), "share a byte"),
    "no name": (header('{"":' + entry() + "}", bytes(8)), "without a name"),
    "twice": (header('{"x":' + entry() + ',"x":' + entry() + "}", bytes(8)), "its output has a name twice"),
    "twice, far apart": (header("{" + ",".join(f'"{i % 3000}":' + entry("U8", "[0]", 0) for i in range(3001)) + "}"), "its output has a name twice"),
    "a NUL": (header('{"a\\u0000b":' + entry() + "}", bytes(8)), "its output has a NUL in a name"),
    "overlap": (header('{"x":' + entry() + ',"y":' + entry() + "}", bytes(8)), "breaks a rule of safetensors"),
    "huge": (header('{"x":' + entry("U8", f"[{1 << 60}]", 1 << 60) + "}"), "the disk has"),
    "huger": (header('{"x":' + entry("U8", f"[{(1 << 63) - 1}]", (1 << 63) - 1) + "}"), "does not begin with a header"),
    "negative": (header('{"x":{"dtype":"F32","shape":[-2],"data_offsets":[8,0]}}', bytes(8)), "does not begin with a header"),
    "deep": (header("{" + '"a":[' * 500 + "]" * 500 + "}"), "does not begin with a header"),
    "header of 1 EB": ((1 << 60).to_bytes(8, "little") + b"{" * 100, "does not begin with a header"),
}


def test_a_program_that_fails_is_told_and_nothing_is_made(step, store, ckptfs, scratch):
    kept = list((store / "sessions").iterdir())
    before = ckptfs.json("ls", store, step)
    for name, (command, why) in BAD.items():
        if isinstance(command, bytes):
            (scratch / "bytes").write_bytes(command)
            command = f"cat >/dev/null; cat {scratch}/bytes"
        done = ckptfs("convert", store, step, "2", "--exec", command, "--timeout", "1s" if "600" in command else "60s", check=False)
        assert done.returncode == 1 and why in done.stderr, f"{name}: {done.stderr}"
        assert done.stdout == "" and sum(line.startswith("ckptfs: ") for line in done.stderr.splitlines()) == 1, done.stderr
        assert list((store / "sessions").iterdir()) == kept, name
    assert [row["name"] for row in ckptfs.json("ls", store)] == ["1"] and ckptfs.json("sessions", store) == []
    assert ckptfs.json("ls", store, step) == before
    ckptfs("verify", store, "--read-data")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_program_and_leaves_nothing(step, store, ckptfs, scratch, number):
    verb = subprocess.Popen([ckptfs.path, "convert", store, step, "2", "--exec", f"echo $$ > {scratch}/pid.new; mv {scratch}/pid.new {scratch}/pid; exec sleep 600"], stderr=subprocess.PIPE)
    while not (scratch / "pid").exists():
        assert verb.poll() is None
        time.sleep(0.01)
    verb.send_signal(number)
    verb.communicate(timeout=60)
    assert verb.returncode == 128 + number
    gone(int((scratch / "pid").read_text()))
    assert [row["name"] for row in ckptfs.json("ls", store)] == ["1"] and ckptfs.json("sessions", store) == []


def test_a_killed_verb_takes_the_program_with_it_and_leaves_a_session_as_others_do(step, store, ckptfs, scratch):
    command = f"sleep 600 & echo $$ $! > {scratch}/pid.new; mv {scratch}/pid.new {scratch}/pid; wait"
    verb = subprocess.Popen([ckptfs.path, "convert", store, step, "2", "--exec", command], stderr=subprocess.DEVNULL)
    while not (scratch / "pid").exists():
        assert verb.poll() is None
        time.sleep(0.01)
    verb.kill()
    verb.wait()
    pids = [int(pid) for pid in (scratch / "pid").read_text().split()]
    try:
        for pid in pids:
            gone(pid)
    except AssertionError:
        os.kill(pids[1], signal.SIGKILL)
        raise
    assert [row["name"] for row in ckptfs.json("ls", store)] == ["1"]
    assert [row["state"] for row in ckptfs.json("sessions", store)] == ["interrupted"]
    ckptfs("convert", store, step, "2", "--exec", "cat")


def test_a_signal_of_the_program_to_its_group_is_not_its_end(step, store, ckptfs, scratch, model):
    ckptfs("convert", store, step, "2", "--exec", "trap '' TERM; kill 0; cat")
    same(arrays_of(ckptfs, store, "2", scratch), model)


def test_memory_stays_bounded_whatever_the_arrays_have(store, ckptfs, scratch):
    (scratch / "in").mkdir()
    with open(scratch / "in/model.safetensors", "wb") as f:
        f.write(header('{"x":' + entry("U8", f"[{400 << 20}]", 400 << 20) + "}"))
        f.truncate(f.tell() + (400 << 20))
    ckptfs("init", store)
    ckptfs("save", store, scratch / "in", "1")
    done = ckptfs("convert", store, "1", "2", "--exec", "cat; grep VmHWM /proc/$PPID/status >&2")
    assert int(re.search(r"VmHWM:\s+(\d+) kB", done.stderr)[1]) < 100 << 10, done.stderr
    assert ckptfs.json("arrays", store, "2")[0]["bytes"] == 400 << 20


# --- A shared object ------------------------------------------------------------------------------------------------------


@pytest.fixture
def plugin(scratch):
    (scratch / "plugin.c").write_text(PLUGIN)
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", f"-I{TREE}/core", "-o", scratch / "plugin.so", scratch / "plugin.c"], check=True)
    return scratch / "plugin.so"


def test_a_plugin_makes_the_new_step(step, store, ckptfs, scratch, model, plugin):
    done = ckptfs("convert", store, step, "2", "--plugin", plugin, env=os.environ | {"HOW": "well"})
    assert done.stdout == "" and "stdout of a plugin is no stream" in done.stderr
    same(arrays_of(ckptfs, store, "2", scratch), {name + ".flat": (array * 3).reshape(-1) for name, array in model.items()})


def test_a_plugin_that_fails_is_told_and_nothing_is_made(step, store, ckptfs, scratch, plugin):
    subprocess.run(["cc", "-shared", "-fPIC", "-xc", "/dev/null", "-o", scratch / "empty.so"], check=True)
    for name, how, why in (("plugin", "crash", "was killed by signal 6"), ("plugin", "refuse", "ckpt_convert() has failed: Numerical result out of range"), ("plugin", "short", "its output ends after"), ("nosuch", "", "cannot be loaded"), ("empty", "", "has no function ckpt_convert()")):
        done = ckptfs("convert", store, step, "2", "--plugin", scratch / f"{name}.so", env=os.environ | {"HOW": how}, check=False)
        assert done.returncode == 1 and why in done.stderr, f"{how}: {done.stderr}"
    assert [row["name"] for row in ckptfs.json("ls", store)] == ["1"] and ckptfs.json("sessions", store) == []
