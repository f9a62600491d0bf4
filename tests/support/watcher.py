"""A process that lists folders of a mount all the time and writes down what it saw: nobody may ever see half a step.

    with watch(mount.path, mount / "sub") as w:
        ... save ...
    w.check()        # every sight of every step was whole, and none went away again
"""

import contextlib
import fnmatch
import json
import os
import signal
import subprocess
import sys
import time

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from support import trees

PLAIN = {"logs", "plain"}


def _look(folder):
    """{step: {path: size}} of the directories that a listing shows; a step that goes away meanwhile counts as missing files."""
    seen = {}
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name not in PLAIN and os.path.isdir(path):
            seen[name] = trees.sizes(path)
    return seen


def _look_for(folder, pattern, ignored):
    """The same of names like the pattern, files too; without those that go away while they are looked at."""
    seen = {}
    for name in fnmatch.filter(os.listdir(folder), pattern):
        if ignored and fnmatch.fnmatch(name, ignored):
            continue
        path = os.path.join(folder, name)
        with contextlib.suppress(FileNotFoundError):
            seen[name] = trees.sizes(path) if os.path.isdir(path) else {"": os.lstat(path).st_size}
    return {name: files for name, files in seen.items() if name in os.listdir(folder)}


def _watch(out, ignored, pattern, folders):
    """One line for each new sight: when, where, what. After SIGUSR1 it looks once more at everything and ends."""
    last = {}
    rounds = 0
    told = []
    signal.signal(signal.SIGUSR1, lambda *_: told.append(True))
    out = open(out, "w", buffering=1)
    print("ready", flush=True)
    parent = os.getppid()
    ending = False
    while not ending and os.getppid() == parent:
        if pattern:
            time.sleep(0.001)  # those who save have several processes, and want the processor too
        rounds += 1
        ending = bool(told)
        for folder in folders:
            try:
                seen = _look_for(folder, pattern, ignored) if pattern else {k: v for k, v in _look(folder).items() if k not in ignored}
            except FileNotFoundError:
                continue
            if seen != last.get(folder):
                last[folder] = seen
                out.write(json.dumps({"at": time.time(), "round": rounds, "folder": folder, "seen": seen}) + "\n")


class Watch:
    def __init__(self, sights, folders):
        self.sights, self.folders = sights, folders

    def check(self, expect):
        """`expect`: how many steps must have been seen in all. Each must always have looked as it does now."""
        final = {str(f): _look(f) for f in self.folders if os.path.isdir(f)}
        known = {f: set() for f in final}
        for sight in self.sights:
            folder, seen = sight["folder"], sight["seen"]
            for name, files in seen.items():
                assert name in final[folder], f"{name} was listed in {folder} and is gone"
                assert files == final[folder][name], f"{name} was listed when it had {files}, complete it has {final[folder][name]}"
            assert known[folder] <= set(seen), f"{known[folder] - set(seen)} went out of the listing of {folder} again"
            known[folder] |= set(seen)
        assert sum(map(len, known.values())) == expect, f"the watcher saw {known}"

    def check_whole(self, late=()):
        """Steps may have gone away, as rotation has it. Each has always looked as it did when it was last seen, but for files like
        `late`, which may come afterwards. Returns the names of all."""
        last = {}
        for sight in reversed(self.sights):
            for name, files in sight["seen"].items():
                files = {path: size for path, size in files.items() if not any(fnmatch.fnmatch(path, pattern) for pattern in late)}
                whole = last.setdefault(name, files)
                assert files == whole, f"{name} was listed when it had {files}, complete it had {whole}"
        return set(last)


@contextlib.contextmanager
def watch(world, *folders, ignored=(), pattern=None):
    """`pattern`: only what is named so, files too; for check_whole(). `ignored`: names, or with a pattern one like it."""
    log = world.scratch / f"watch-{time.monotonic_ns()}.jsonl"
    process = subprocess.Popen([sys.executable, __file__, str(log), json.dumps([ignored if pattern else list(ignored), pattern]), *map(str, folders)], stdout=subprocess.PIPE)
    world.callback(process.wait)
    world.callback(process.kill)
    assert process.stdout.readline() == b"ready\n"
    watcher = Watch([], [os.fspath(f) for f in folders])
    try:
        yield watcher
        assert process.poll() is None, f"the watcher ended by itself: {process.returncode}"
        process.send_signal(signal.SIGUSR1)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(20)
    watcher.sights = [json.loads(line) for line in log.read_text().splitlines()]


if __name__ == "__main__":
    _watch(sys.argv[1], *json.loads(sys.argv[2]), sys.argv[3:])
