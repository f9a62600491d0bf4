"""Runs cases in a directory and prints what each said, one JSON line a case.

    python3 run.py DIR [CASE...]            CASE may be a pattern: 'rename_*'
    python3 run.py --users DIR [CASE...]    those about users and permissions, as root
    python3 run.py --prepare DIR, then --act DIR: these in their halves, those that only read
"""

import fnmatch
import importlib
import json
import os
import pickle
import select
import signal
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import frame  # noqa: E402

SUITES = {"posix": ["attributes", "data", "directories", "files", "locks", "names", "renames", "several"], "users": ["users"]}
SECONDS = float(os.environ.get("CKPT_CASE_SECONDS", "20"))


def load(suite):
    for name in SUITES[suite]:
        importlib.import_module(name)
    return list(frame.CASES)


def _say(name, half):
    said = frame.Said()
    if name in frame.PREPARE and half != "act":
        frame.PREPARE[name]()
    if half != "prepare":
        frame.CASES[name](said)
    return {label: repr(value) for label, value in said.all.items()}


def _in_own_process(name, where, half, reply):
    os.setpgid(0, 0)
    os.umask(0o022)
    if half != "act":
        os.mkdir(where)
    os.chdir(where)
    try:
        answer = _say(name, half)
    except BaseException:
        answer = {"raised": traceback.format_exc()}
    with os.fdopen(reply, "wb") as f:
        pickle.dump(answer, f)
    os._exit(0)


def run(name, where, half):
    """What the case said: {label: repr of the value}."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(ours)
        _in_own_process(name, where, half, theirs)
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


def main(*args):
    options = {a for a in args if a.startswith("--")}
    where, *patterns = [a for a in args if a not in options]
    names = load("users" if options else "posix")
    half = "prepare" if "--prepare" in options else "act" if "--act" in options else None
    if half:
        names = [name for name in names if name in sys.modules["users"].READING]
    for name in names:
        if not patterns or any(fnmatch.fnmatch(name, p) for p in patterns):
            print(json.dumps({"case": name, "said": run(name, os.path.join(where, name), half)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
