"""A client that saves step after step until something fails, and writes down what it was told.

    saver.py FOLDER marker|rename LOG FIRST

LOG has a line for each event, on disk before the next call: "begun N" once the step's directory is made, "acked N"
once the completing call returned 0, "failed N ERRNO". What step N holds depends on N alone: `expected(n)`.
"""

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
    os.mkdir(path)
    say("begun", n)
    _fill(path, n)
    if way == "rename":
        os.rename(path, os.path.join(folder, str(n)))
    else:
        trees.write(os.path.join(path, ".finalize"), b'{"extras": {"n": %d}}' % n)
    say("acked", n)


def _main(folder, way, log, n):
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(*words):
        os.write(out, (" ".join(map(str, words)) + "\n").encode())

    while True:
        try:
            _save(folder, way, n, say)
        except OSError as e:
            say("failed", n, errno.errorcode[e.errno])
            return
        n += 1


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
