"""Runs cases in a directory and prints what each said, one JSON line a case.

    python3 run.py DIR [CASE...]        CASE may be a pattern: 'rename_*'
"""

import fnmatch
import json
import os
import pickle
import select
import signal
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import attributes  # noqa: E402,F401
import data  # noqa: E402,F401
import directories  # noqa: E402,F401
import files  # noqa: E402,F401
import locks  # noqa: E402,F401
import names  # noqa: E402,F401
import renames  # noqa: E402,F401
import several  # noqa: E402,F401
from frame import CASES, Said  # noqa: E402

SECONDS = float(os.environ.get("CKPT_CASE_SECONDS", "20"))


def _in_own_process(name, where, reply):
    said = Said()
    os.setpgid(0, 0)
    os.umask(0o022)
    os.mkdir(where)
    os.chdir(where)
    try:
        CASES[name](said)
        answer = {label: repr(value) for label, value in said.all.items()}
    except BaseException:
        answer = {"raised": traceback.format_exc()}
    with os.fdopen(reply, "wb") as f:
        pickle.dump(answer, f)
    os._exit(0)


def run(name, where):
    """What the case said: {label: repr of the value}."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(ours)
        _in_own_process(name, where, theirs)
    os.close(theirs)
    text, deadline = b"", time.monotonic() + SECONDS
    while True:
        if not select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            text = pickle.dumps({"raised": f"{name} has not ended after {SECONDS} s"})
            break
        piece = os.read(ours, 1 << 16)
        if not piece:
            break
        text += piece
    os.close(ours)
    try:
        os.killpg(pid, signal.SIGKILL)  # what a case left running
    except (ProcessLookupError, PermissionError):
        pass
    status = os.waitpid(pid, 0)[1]
    return pickle.loads(text) if text else {"raised": f"{name} ended with {status}"}


def main(where, *patterns):
    for name in CASES:
        if not patterns or any(fnmatch.fnmatch(name, p) for p in patterns):
            print(json.dumps({"case": name, "said": run(name, os.path.join(where, name))}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
