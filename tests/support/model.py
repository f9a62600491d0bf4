"""What a mount must show, after any sequence of operations: a plain folder that the same calls were made in, and which of its
directories are steps, in which state.

An operation is a tuple of its name and arguments, so that a failing sequence can be printed, shrunk and kept.
"""

import collections
import errno
import os
import shutil
import stat
import subprocess

from support import trees
from support.mounting import Mount, errno_name, wait_until

STEPS = ("1", "2", "5")
TEMP = "5.orbax-checkpoint-tmp"
NAMES = ("x", "y", "d")
SIZES = (0, 1, 5000, 70_000, 200_000)


class Wrong(AssertionError):
    pass


def _outcome(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except OSError as e:
        return errno_name(e)
    return "ok"


def _write(path, data, flags):
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def seen(folder):
    """Everything a step or folder must keep but times and owners."""
    out = trees.describe(folder, owners=False)
    for entry in out.values():
        entry.pop("mtime_ns")
    return out


class Model:
    """The mount, its mirror, and the states of the steps: "staged", "committed", or "reopened" (committed, and being changed)."""

    def __init__(self, world):
        self._program = world.program
        self.store = world.scratch / "store"
        self.mirror = world.scratch / "mirror"
        self._kept = world.scratch / "kept"
        self.mirror.mkdir()
        self._kept.mkdir()
        self.mount = Mount.new(world, self.store)
        self.states = {}
        self._versions = {}  # of a reopened step: where a copy of the version before is
        self._trash = []     # (name, copy), newest last
        self._replaced = []  # (copy in the trash, number of the directory that both it and what replaced it have)
        self._copies = 0
        self._shared = set()  # numbers in the mirror of what began as a link of a committed file

    # --- What must be visible -----------------------------------------------------------------------------------------

    def check(self):
        hidden = {name for name, state in self.states.items() if state != "committed"}
        listed = sorted(set(os.listdir(self.mirror)) - hidden)
        if self.mount.listing() != listed:
            raise Wrong(f"listed {self.mount.listing()}, not {listed}; states {self.states}")
        for name in sorted(os.listdir(self.mirror)):
            mine, theirs = self.mirror / name, self.mount / name
            if os.path.isdir(mine):
                got, want = seen(theirs), seen(mine)
            else:
                got, want = trees.describe(self.mount.path, owners=False).get(name), trees.describe(self.mirror, owners=False).get(name)
                for entry in (got, want):
                    entry and entry.pop("mtime_ns")
            if got != want:
                raise Wrong(f"{name} ({self.states.get(name)}) is\n{got}\nnot\n{want}")
        errors = [line for line in self.mount.errors() if "EIO" in line or "EBADMSG" in line]
        if errors:
            raise Wrong("\n".join(errors))

    def check_whole(self):
        self.check()
        self.do(("remount",))
        found = self._program("verify", self.store, check=False)
        if found.returncode:
            raise Wrong(f"verify: {found.stdout}{found.stderr}")

    def possible(self):
        """{kind: operations that would do something now}, and some that must fail."""
        folders = [""] + [at for at in self._below() if os.path.isdir(self.mirror / at) and at.count("/") < 2]
        files = [at for at in self._below() if os.path.isfile(self.mirror / at) and not os.path.islink(self.mirror / at)]
        everything = [at for at in self._below() if at not in self.states]
        names = ["x"] + [os.path.join(folder, name) for folder in folders if folder for name in NAMES]  # most happens in steps
        trash = sorted({name for name, _ in self._trash})
        steps = sorted(self.states)
        return {
            "begin": [("mkdir", name) for name in (*STEPS, TEMP, "logs")],
            "mkdir": [("mkdir", path) for path in names],
            "write": [("write", path, size) for path in names for size in SIZES],
            "append": [("append", path, size) for path in files for size in SIZES],
            "truncate": [("truncate", path, size) for path in files for size in SIZES],
            "rename": [("rename", path, os.path.join(os.path.dirname(path), name)) for path in everything for name in NAMES],
            "carry": [("rename", path, to) for path in files for to in names],
            "unlink": [("unlink", path) for path in everything],
            "rmdir": [("rmdir", path) for path in (*everything, *steps) if os.path.isdir(self.mirror / path)],
            "link": [("link", path, to) for path in files for to in names],
            "symlink": [("symlink", path) for path in names],
            "chmod": [("chmod", path, mode) for path in everything for mode in (0o700, 0o4755, 0o600)],
            "setxattr": [("setxattr", path, value) for path in everything for value in (b"", b"v" * 1000)],
            "commit": [("commit", name) for name in steps],
            "move": [("move", name, to) for name in steps for to in STEPS],
            "rmtree": [("rmtree", name) for name in steps],
            "rm": [("rm", name) for name in steps],
            "undelete": [("undelete", name) for name in trash],
            "from": [("from", source, name) for source in steps for name in STEPS],
            "take": [("take", path) for path in everything],
            "convert": [("convert",)] if "logs" not in self.states and self._exists("logs") else [],
            "remount": [("remount",)],
            "kill": [("kill",)],
        }

    def _below(self):
        return sorted(os.path.relpath(os.path.join(at, name), self.mirror) for at, names, others in os.walk(self.mirror) for name in names + others)

    # --- Operations ---------------------------------------------------------------------------------------------------

    def do(self, operation):
        getattr(self, f"_do_{operation[0]}")(*operation[1:])
        self.check()

    def _both(self, call):
        """The same call on both sides, with the same outcome: "ok" or an errno."""
        want = _outcome(call, self.mirror)
        got = _outcome(call, self.mount.path)
        if got != want:
            raise Wrong(f"{got}, not {want}")
        return want

    def _refused(self, call, *errors):
        got = _outcome(call, self.mount.path)
        if got not in errors:
            raise Wrong(f"{got}, not {' or '.join(errors)}")

    def _state(self, path):
        return self.states.get(path.split("/")[0]) if "/" in path else None

    def _copy(self, name):
        self._copies += 1
        copy = self._kept / str(self._copies)
        subprocess.run(["cp", "-a", self.mirror / name, copy], check=True)
        return copy

    def _put_back(self, name, copy):
        shutil.rmtree(self.mirror / name, ignore_errors=True)
        subprocess.run(["cp", "-a", copy, self.mirror / name], check=True)

    def _reopens(self, path):
        """Something in a committed step is about to be changed."""
        name = path.split("/")[0]
        if self._state(path) == "committed":
            self._versions[name] = self._copy(name)
            self.states[name] = "reopened"

    def _exists(self, path):
        return os.path.lexists(self.mirror / path)

    def _do_mkdir(self, path):
        done = self._both(lambda top: os.mkdir(top / path))
        if done == "ok" and path in (*STEPS, TEMP):
            self.states[path] = "staged"

    def _do_write(self, path, size):
        if os.path.isfile(self.mirror / path):
            self._reopens(path)
        done = self._both(lambda top: _write(top / path, trees.content((path, size), size), os.O_CREAT | os.O_TRUNC))
        if done == "ok" and size == 0 and self._state(path) == "committed":
            # An empty file is added with its last descriptor, behind the close: a shell closes one of two before it writes.
            wait_until(lambda: os.path.basename(path) in self.mount.listing(os.path.dirname(path)), what="a new file in the listing")

    def _do_append(self, path, size):
        if size and os.path.isfile(self.mirror / path):
            self._reopens(path)
        self._both(lambda top: _write(top / path, trees.content((path, size), size), os.O_APPEND))

    def _do_truncate(self, path, size):
        if os.path.isfile(self.mirror / path) and os.path.getsize(self.mirror / path) != size:
            self._reopens(path)
        self._both(lambda top: os.truncate(top / path, size))

    def _do_rename(self, source, target):
        if not self._exists(source):
            return
        states = (self._state(source), self._state(target))
        if "reopened" in states and os.path.dirname(source) != os.path.dirname(target):
            return
        if "committed" in states and self._tree(source) != self._tree(target) and not self._moves_in(source):
            return
        def rename(top):
            os.rename(top / source, top / target)
        if self._tree(source) != self._tree(target) and self._crosses_badly(self.mirror / source, self.mirror / target):
            self._refused(rename, "EXDEV")
        else:
            self._both(rename)

    def _moves_in(self, source):
        """A file of its own, into a committed step. One that moves out of it is marked as removed, and a kill drops the mark."""
        found = os.lstat(self.mirror / source)
        return self._state(source) != "committed" and stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_ino not in self._shared

    def _tree(self, path):
        """Hard links do not leave it: a step, or all that is in none."""
        name = path.split("/")[0]
        return name if name in self.states else ""

    def _crosses_badly(self, source, target):
        return (os.path.isdir(source) or os.lstat(source).st_nlink > 1) and not self._kernel_ends_rename(source, target)

    @staticmethod
    def _kernel_ends_rename(source, target):
        """It does nothing or fails without asking the mount: two links of one file, a folder over a file, or the other way round."""
        if not os.path.lexists(target):
            return False
        a, b = os.lstat(source), os.lstat(target)
        return a.st_ino == b.st_ino or stat.S_ISDIR(a.st_mode) != stat.S_ISDIR(b.st_mode)

    def _do_unlink(self, path):
        if self._state(path) != "committed":  # there only `rm -r` of the step counts
            self._both(lambda top: os.unlink(top / path))

    def _do_rmdir(self, path):
        if self._state(path) == "committed" or self.states.get(path) in ("committed", "reopened"):
            return
        if self._both(lambda top: os.rmdir(top / path)) == "ok":
            self.states.pop(path, None)

    def _do_link(self, source, target):
        if self._state(target) == "committed" and self._tree(source) != self._tree(target):
            return
        if not os.path.isfile(self.mirror / source) or os.path.islink(self.mirror / source) or os.stat(self.mirror / source).st_ino in self._shared:
            return
        same = source.split("/")[0] == target.split("/")[0] or (self._state(source) is None and self._state(target) is None)
        if self._state(source) == "committed" and not same:
            self._share(source, target)
        elif same and self._state(source) != "reopened":
            self._both(lambda top: os.link(top / source, top / target))

    def _share(self, source, target):
        """A link of a committed file is a file of its own."""
        def link(top):
            if top == self.mirror and not self._exists(target):
                subprocess.run(["cp", "-dp", "--preserve=xattr", top / source, top / target], check=False, capture_output=True)
                os.stat(top / target)
            else:
                os.link(top / source, top / target)
        if self._both(link) == "ok":
            self._shared.add(os.stat(self.mirror / target).st_ino)

    def _do_symlink(self, path):
        self._both(lambda top: os.symlink("to " + path, top / path))

    def _do_chmod(self, path, mode):
        if os.path.islink(self.mirror / path):
            return
        self._both(lambda top: os.chmod(top / path, mode))
        self._make_durable(path)

    def _do_setxattr(self, path, value):
        if os.path.islink(self.mirror / path):
            return
        self._both(lambda top: os.setxattr(top / path, "user.k", value))
        self._make_durable(path)

    def _make_durable(self, path):
        """Attributes of a committed step are a version a second later, or when its folder is synced: a kill may come before."""
        if self._state(path) == "committed":
            fd = os.open(self.mount / path.split("/")[0], os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)

    # --- Steps --------------------------------------------------------------------------------------------------------

    def _do_commit(self, name):
        if name not in self.states:
            return
        trees.write(self.mount / name / ".finalize", b"")
        if self.states[name] == "reopened":
            self._is_replaced(name)
        self.states[name] = "committed"

    def _is_replaced(self, name):
        self._trash.append((name, self._versions.pop(name)))
        self._replaced.append((self._trash[-1][1], os.stat(self.mount / name).st_ino))
        self.states[name] = "committed"

    def _do_move(self, source, target):
        """mv of a whole step; from the temporary name it commits."""
        if source not in self.states or self._exists(target) and target not in self.states:
            return
        state = self.states[source]
        if source == target and state == "reopened":
            return  # EBUSY, or nothing where the kernel sees that it is itself
        if source == target:
            self._both(lambda top: os.rename(top / source, top / target))
        elif state == "reopened":
            self._refused(lambda top: os.rename(top / source, top / target), "EBUSY")
        elif self.states.get(target) in ("committed", "reopened"):
            self._refused(lambda top: os.rename(top / source, top / target), "ENOTEMPTY")
        elif self._both(lambda top: os.rename(top / source, top / target)) == "ok":
            del self.states[source]
            self.states[target] = state
            if source == TEMP:
                self.states[target] = "committed"

    def _do_rmtree(self, name):
        if name not in self.states:
            return
        copy = self._versions.pop(name, None) or self._copy(name)
        shutil.rmtree(self.mount / name)
        shutil.rmtree(self.mirror / name)
        if self.states.pop(name) != "staged":
            self._trash.append((name, copy))

    def _do_rm(self, name):
        if self.states.get(name) != "committed":
            return
        copy = self._copy(name)
        self._program("rm", self.store, name)
        shutil.rmtree(self.mirror / name)
        del self.states[name]
        self._trash.append((name, copy))

    def _do_undelete(self, name):
        there = [one for one in self._trash if one[0] == name]
        if there and self._has_a_double(there[-1][1]):
            return
        possible = there and not self._exists(name)
        done = self._program("undelete", self.store, name, check=False)
        if (done.returncode == 0) != bool(possible):
            raise Wrong(f"undelete: {done.returncode} {done.stderr}; trash {[n for n, _ in self._trash]}")
        if possible:
            self._trash.remove(there[-1])
            self._put_back(name, there[-1][1])
            self.states[name] = "committed"

    def _has_a_double(self, copy):
        """What replaced it was moved, and has the same directory: a known fault, the mount takes the two for one."""
        numbers = {number for one, number in self._replaced if one == copy}
        return any(os.stat(self.mount / name).st_ino in numbers for name in self.states)

    def _do_from(self, source, name):
        """A staged step with all files of a committed one."""
        if self.states.get(source) != "committed" or self._exists(name):
            return
        self._program("begin", self.store, name, "--from", source)
        subprocess.run(["cp", "-a", self.mirror / source, self.mirror / name], check=True)
        self.states[name] = "staged"
        for at, _, names in os.walk(self.mirror / name):
            self._shared |= {os.lstat(os.path.join(at, one)).st_ino for one in names}

    def _do_take(self, path):
        """`ckptfs rm STEP/PATH`: a new version without it."""
        if self._state(path) != "committed" or not self._exists(path):
            return
        self._program("rm", self.store, path)
        if os.path.isdir(self.mirror / path) and not os.path.islink(self.mirror / path):
            shutil.rmtree(self.mirror / path)
        else:
            os.unlink(self.mirror / path)

    def _do_convert(self):
        """A marker in a plain folder."""
        if "logs" in self.states or not self._exists("logs"):
            return
        try:
            trees.write(self.mount / "logs/.finalize", b"")
        except OSError as why:
            if why.errno != errno.EMLINK or not self._any_link_outside("logs"):
                raise
            return
        if self._any_link_outside("logs"):
            raise Wrong("a folder with a file that has a name outside became a step")
        self.states["logs"] = "committed"

    def _any_link_outside(self, top):
        found = [os.lstat(os.path.join(at, one)) for at, _, names in os.walk(self.mirror / top) for one in names]
        found += [os.lstat(os.path.join(at, one)) for at, names, _ in os.walk(self.mirror / top) for one in names if os.path.islink(os.path.join(at, one))]
        names = collections.Counter(one.st_ino for one in found)
        return any(names[one.st_ino] < one.st_nlink for one in found if one.st_ino not in self._shared)

    def _restart(self, restart, orderly):
        """Staged steps are staged again; what was changed and is closed and whole is committed by an orderly end."""
        for name, state in list(self.states.items()):
            if state == "reopened" and orderly:
                self._is_replaced(name)
            elif state == "reopened":
                self._put_back(name, self._versions.pop(name))
                self.states[name] = "committed"
        restart()

    def _do_remount(self):
        self._restart(self.mount.remount, True)

    def _do_kill(self):
        def restart():
            self.mount.kill9()
            self.mount.start()
        self._restart(restart, False)
