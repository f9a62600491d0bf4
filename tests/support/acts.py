"""Clients that save, change and delete steps through a mount, and the record of what they were told.

The record is kept by the clients, off the disk, and knows nothing of ckptfs but the meaning of its answers. An act says what is so when
its last call has returned, and where the disk's log was before its first call and after its last. So a power cut before it finds nothing of it,
one after it all of it, and one between them either.
"""

import contextlib
import hashlib
import os
import random
import shutil
import threading
from pathlib import Path

from support import checkpoint_files, trees

SIZES = [1, 300, 4_000, 4_096, 9_000, 40_000]
LARGE = 700_000


def identity(data, st):
    """What look.c says of a file: the bytes are those that were written, the rest is what the client sees."""
    return f"{hashlib.sha256(data).hexdigest()} {len(data)} {st.st_mode & 0o7777:o} {st.st_mtime_ns}"


def plain_identity(data):
    return f"{hashlib.sha256(data).hexdigest()} {len(data)}"


def plain_files(tree):
    return {str(p.relative_to(tree)): plain_identity(p.read_bytes()) for p in Path(tree).rglob("*") if p.is_file()}


def see(mount, folders):
    """What is there, as a client finds it, who reads every byte: {"steps", "plain", "trash"} for judge(). The trash is not looked at."""
    steps, plain = {}, {}
    for folder in (f for f in folders if (mount / f).is_dir()):
        for name in os.listdir(mount / folder):
            path = mount / folder / name
            if path.is_dir() and name.startswith("checkpoint-"):
                steps[folder + name] = _see_step(path)
            elif path.is_file():
                plain[folder + name] = plain_identity(path.read_bytes())
    return {"steps": steps, "plain": plain, "trash": None}


def _see_step(folder):
    out = {}
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            out[os.path.relpath(path, folder)] = f"-> {os.readlink(path)}" if os.path.islink(path) else identity(Path(path).read_bytes(), os.lstat(path))
    return out


class Record:
    """All acts, in the order in which they began. `position` says how long the disk's log is."""

    def __init__(self, position):
        self._position, self._lock = position, threading.Lock()
        self.acts = []

    @contextlib.contextmanager
    def act(self, what, durable=True):
        """The body does it, and says what it comes to: act["steps"][PATH] = {FILE: IDENTITY}, or None where it is gone; act["plain"]
        likewise. An act that is not durable has a right to be lost, as a write to a plain file has; a file of act["new"] is live until it
        is done, and may then hold anything."""
        act = {"what": what, "steps": {}, "plain": {}, "new": [], "durable": durable, "end": None}
        with self._lock:
            act["begin"] = self._position()
            self.acts.append(act)
        yield act
        act["end"] = self._position()


class Client:
    """One writer, with names of its own, so that what comes of its acts depends on their order alone."""

    def __init__(self, seed, mount, store, program, record, folders, count):
        self.seed, self.mount, self.store, self.program, self.record = seed, mount, store, program, record
        self.dice, self.folders, self.count = random.Random(seed), folders, count
        self.steps = {}  # as they are: PATH -> {FILE: IDENTITY}
        self.trash = {}  # what was deleted last, and can come back
        self.trackers = set()
        self.problem = None
        self.made = 0

    def run(self):
        try:
            for _ in range(self.count):
                self._act()
        except Exception as e:  # recording.py raises it
            self.problem = e

    def _act(self):
        kinds = ["save", "save", "save_by_rename", "file_step", "tracker"] if len(self.steps) < 25 else ["delete"]  # of 39 names
        if self.steps:
            kinds += ["amend", "amend", "resave", "resave", "take", "delete", "remove", "move"] + ["delete"] * (len(self.steps) > 6)
        if self.trash:
            kinds += ["undelete", "undelete"]
        getattr(self, f"_{self.dice.choice(kinds)}")()

    # --- What the acts are made of

    def _data(self):
        self.made += 1
        size = LARGE if self.dice.random() < 0.03 else self.dice.choice(SIZES) + self.dice.randrange(3)
        return trees.content((self.seed, self.made), size)

    def _write(self, path, data, say):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, self.dice.choice([0o644, 0o600]))
        try:
            os.write(fd, data)
            if self.dice.random() < 0.15:
                os.fsync(fd)
            say(identity(data, os.fstat(fd)))
        finally:
            os.close(fd)

    def _put(self, step, name, say=lambda what: None):
        """say(IDENTITY) is called before the close."""
        data = self._data()
        path = self.mount / step / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write(path, data, say)
        return identity(data, os.lstat(path))

    def _fill(self, step):
        files = {f"{self.dice.choice(['', 'params/', 'params/layer_0/'])}w{i}.distcp": None for i in range(self.dice.randrange(1, 6))}
        for name in files:
            files[name] = self._put(step, name)
        if self.dice.random() < 0.3:
            os.symlink("w0.distcp", self.mount / step / "first")
            files["first"] = "-> w0.distcp"
        return files

    def _complete(self, step):
        trees.write(self.mount / step / ".finalize", b'{"metrics": {"loss": 1.5}}' if self.dice.random() < 0.3 else b"")

    def _new(self):
        """A name that no step has now; sometimes one that a deleted step had."""
        while True:
            path = f"{self.dice.choice(self.folders)}checkpoint-{self.dice.randrange(1, 40)}"
            if path not in self.steps:
                return path

    def _some(self):
        return self.dice.choice(sorted(self.steps))

    def _committed(self, path, files):
        self.steps[path] = files
        self.trash.pop(path, None)

    # --- Acts

    def _save(self):
        path = self._new()
        with self.record.act(f"save {path}") as act:
            (self.mount / path).mkdir()
            act["steps"][path] = self._fill(path)
            self._complete(path)
        self._committed(path, act["steps"][path])

    def _save_by_rename(self):
        path = self._new()
        temp = f"{path}.orbax-checkpoint-tmp"
        with self.record.act(f"save {path} by rename") as act:
            (self.mount / temp).mkdir()
            act["steps"][path] = self._fill(temp)
            os.rename(self.mount / temp, self.mount / path)
        self._committed(path, act["steps"][path])

    def _resave(self):
        """Array data first: from there on the step is saved over, and all that follows is one act."""
        path = self._some()
        arrays = [name for name in sorted(self.steps[path]) if name.endswith(".distcp")]
        if not arrays:
            return
        with self.record.act(f"save over {path}") as act:
            files = dict(self.steps[path])
            first = self.dice.choice(arrays)
            others = [name for name in sorted(files) if name != first]
            for name in [first, *self.dice.sample(others, self.dice.randrange(len(others) + 1))]:
                if name != first and (files[name].startswith("->") or self.dice.random() < 0.2):
                    os.unlink(self.mount / path / name)
                    del files[name]
                else:
                    files[name] = self._put(path, name)
            files["again.bin"] = self._put(path, "again.bin")
            act["steps"][path] = files
            self._complete(path)
        self._committed(path, files)

    def _amend(self):
        path = self._some()
        with self.record.act(f"add to {path}") as act:
            name = f"late-{self.made}.bin"
            # Its close is the act itself.
            self._put(path, name, lambda what: act["steps"].update({path: self.steps[path] | {name: what}}))
        self.steps[path] = act["steps"][path]

    def _take(self):
        path = self._some()
        name = self.dice.choice(sorted(self.steps[path]))
        if len(self.steps[path]) == 1:
            return
        with self.record.act(f"take {name} from {path}") as act:
            act["steps"][path] = {n: f for n, f in self.steps[path].items() if n != name}
            self.program("rm", self.store, f"{path}/{name}")
        self.steps[path] = act["steps"][path]

    def _gone(self, path):
        self.trash[path] = self.steps.pop(path)

    def _delete(self):
        path = self._some()
        with self.record.act(f"rm -r {path}") as act:
            act["steps"][path] = None
            shutil.rmtree(self.mount / path)
        self._gone(path)

    def _remove(self):
        path = self._some()
        with self.record.act(f"ckptfs rm {path}") as act:
            act["steps"][path] = None
            self.program("rm", self.store, path)
        self._gone(path)

    def _undelete(self):
        path = self.dice.choice(sorted(self.trash))
        with self.record.act(f"undelete {path}") as act:
            act["steps"][path] = self.trash[path]
            self.program("undelete", self.store, path)
        self.steps[path] = self.trash.pop(path)

    def _move(self):
        path, to = self._some(), self._new()
        with self.record.act(f"mv {path} {to}") as act:
            act["steps"][path], act["steps"][to] = None, self.steps[path]
            os.rename(self.mount / path, self.mount / to)
        self._committed(to, self.steps.pop(path))
        self.trash.pop(path, None)  # an older one of this name would come back

    def _file_step(self):
        path = f"{self.dice.choice(self.folders)}model-{self.dice.randrange(2)}.pt"
        self.made += 1
        data = checkpoint_files.zip_file(self.made % 256)
        with self.record.act(f"write {path}") as act:
            act["plain"][path] = plain_identity(data)
            trees.write(self.mount / path, data)

    def _tracker(self):
        path = f"{self.dice.choice(self.folders)}newest.txt"
        self.made += 1
        new = path not in self.trackers
        durable = new or self.dice.random() < 0.5
        self.trackers.add(path)
        with self.record.act(f"{'write and fsync' if durable else 'write'} {path}", durable) as act:
            data = b"%d\n" % self.made * self.dice.choice([1, 2000])
            act["plain"][path], act["new"] = plain_identity(data), [path] * new
            fd = os.open(self.mount / path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                os.write(fd, data)
                if durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
