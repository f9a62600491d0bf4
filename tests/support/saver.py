"""A client that saves step after step until something fails, and writes down what it was told.

    saver.py FOLDER DEVICE marker|rename LOG FIRST

DEVICE is the mount's: once that is gone, what was under it is found in its place, and a saver there would never end.

A step that an earlier saver has not completed is gone on with, in what that one has left.

LOG has a line for each event, on disk before the next call: "begun N" once the step's directory is made, "acked N"
once the completing call returned 0, "failed N ERRNO". What step N holds depends on N alone: `expected(n)`.
"""

import contextlib
import errno
import os
import random
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from support import trees

TEMP = ".orbax-checkpoint-tmp"


def _plan(n):
    dice = random.Random(n)
    return dice.randrange(1, 30), dice.choice([100, 5_000, 60_000])


def _fill(folder, n):
    files, size = _plan(n)
    return trees.fill(folder, seed=f"saver {n}", files=files, size=size)


def expected(n, scratch):
    """{path: bytes} of step N, made once beside the mount."""
    folder = os.path.join(scratch, f"expected-{n}")
    if not os.path.isdir(folder):
        os.mkdir(folder)
        _fill(folder, n)
    return trees.files(folder)


def _save(folder, way, n, say):
    path = os.path.join(folder, f"{n}{TEMP if way == 'rename' else ''}")
    os.makedirs(path, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(path, "first"))
    say("begun", n)
    _fill(path, n)
    if way == "rename":
        os.rename(path, os.path.join(folder, str(n)))
    else:
        trees.write(os.path.join(path, ".finalize"), b'{"extras": {"n": %d}}' % n)
    say("acked", n)


def _enter(folder, device):
    """The folder, by a name that stays the mount's when it is detached."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    if os.fstat(fd).st_dev != device:
        raise OSError(errno.ENOTCONN, "not mounted")
    return f"/proc/self/fd/{fd}"


def _main(folder, device, way, log, n):
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(*words):
        os.write(out, (" ".join(map(str, words)) + "\n").encode())

    try:
        top = _enter(folder, device)
        while True:
            _save(top, way, n, say)
            n += 1
    except OSError as e:
        say("failed", n, errno.errorcode[e.errno])


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
