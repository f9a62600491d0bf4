"""What the drivers share. A driver is a small training script on one unmodified framework:

    DRIVER.py save FOLDER N...          saves these steps, each under the framework's own name for it
    DRIVER.py load FOLDER N...          loads them; exit status 1 when a bit is not as it was saved
    DRIVER.py save-as FOLDER NAME N     the state of step N under any name, where the framework has it so
    DRIVER.py load-as FOLDER NAME N
    DRIVER.py train FOLDER COUNT KEEP   resumes from what the framework finds, and saves COUNT more, keeping KEEP

It says `saving N`, `saved N`, `resumed N` (or `resumed none`) on its standard output, a line each. Several ranks are several
processes with RANK, WORLD_SIZE and RENDEZVOUS, a file, in their environment; rank 0 speaks. VARIANT chooses among the ways
of one framework.
"""

import os
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402

RANK = int(os.environ.get("RANK", 0))
WORLD = int(os.environ.get("WORLD_SIZE", 1))
VARIANT = os.environ.get("VARIANT", "")


def arrays(n):
    """The state of step n: some arrays of a few MiB, and small ones."""
    dice = np.random.default_rng(n)
    return {"embed": dice.standard_normal((1024, 512), np.float32), "head": dice.standard_normal((512, 1024), np.float32),
            "norm": dice.standard_normal(512, np.float32), "ids": dice.integers(0, 1 << 40, (64, 3)), "half": dice.standard_normal((128, 128)).astype(np.float16),
            "step": np.array(n)}


def same(got, want):
    """Bit by bit, with types and shapes; both are dictionaries of what numpy takes."""
    assert got.keys() == want.keys(), f"names: {sorted(got)}, not {sorted(want)}"
    for name, right in want.items():
        one, right = np.asarray(got[name]), np.asarray(right)
        assert (one.dtype, one.shape) == (right.dtype, right.shape), f"{name}: {one.dtype}{one.shape}, not {right.dtype}{right.shape}"
        assert one.tobytes() == right.tobytes(), f"{name}: other values"


def say(*words):
    if RANK == 0:
        print(*words, flush=True)


def numbers(folder, before, after=""):
    """Those of the names in a folder that are `before`, digits and `after`, in order."""
    inner = (name[len(before):len(name) - len(after)] for name in os.listdir(folder) if name.startswith(before) and name.endswith(after))
    return sorted(int(digits) for digits in inner if digits.isdecimal())


def wait_listed(path, seconds=180):
    """The training that goes on after a save: until a listing shows the step. Most scripts look for what is old later than that.
    The first step of a folder can wait for 30 times `commit_quiet`."""
    import time
    end = time.monotonic() + seconds
    while path.name not in os.listdir(path.parent):
        assert time.monotonic() < end, f"{path.name} was not listed within {seconds} s"
        time.sleep(0.2)


def start_ranks():
    """torch.distributed on gloo, for those that need it with one rank too. The rendezvous is a file: no port is another's."""
    import tempfile

    import torch.distributed as dist
    where = os.environ.get("RENDEZVOUS") or tempfile.mktemp(prefix="rendezvous-")
    dist.init_process_group("gloo", init_method=f"file://{where}", rank=RANK, world_size=WORLD)


def train(driver, folder, count, keep):
    """The loop of those that leave it to the script: the listing says what there is, the newest is resumed, the oldest go."""
    steps = driver.steps(folder)
    last = steps[-1] if steps else None
    if last is not None:
        driver.load(folder, last)
    say("resumed", "none" if last is None else last)
    for n in range(1 if last is None else last + 1, (last or 0) + count + 1):
        say("saving", n)
        driver.save(folder, n)
        if RANK == 0:
            for old in driver.steps(folder)[:-keep]:
                driver.remove(folder, old)
        say("saved", n)


def main(driver):
    """`driver` is a module: save(folder, n) and load(folder, n), the latter compares; and train(folder, count, keep), or steps(folder)
    and remove(folder, n); save_as(folder, name, n) and load_as."""
    command, folder, *rest = sys.argv[1:]
    folder = Path(folder)
    if command == "train":
        own = getattr(driver, "train", None)
        own(folder, int(rest[0]), int(rest[1])) if own else train(driver, folder, int(rest[0]), int(rest[1]))
    elif command in ("save-as", "load-as"):
        getattr(driver, command.replace("-", "_"))(folder, rest[0], int(rest[1]))
    else:
        for n in map(int, rest):
            if command == "save":
                say("saving", n)
                driver.save(folder, n)
                say("saved", n)
            else:
                driver.load(folder, n)
    sys.stdout.flush()
    getattr(driver, "end", lambda: None)()
