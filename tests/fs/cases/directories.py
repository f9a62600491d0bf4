"""Folders: making, removing, and listing them while they change."""

import ctypes
import os

from frame import case, content, in_child, in_children, libc, look, make, outcome, tree

libc.opendir.restype = ctypes.c_void_p
libc.fdopendir.restype = ctypes.c_void_p
for _name in ("readdir", "telldir", "rewinddir", "closedir"):
    getattr(libc, _name).argtypes = [ctypes.c_void_p]
libc.readdir.restype = ctypes.c_void_p
libc.telldir.restype = ctypes.c_long
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
TYPES = {4: "dir", 8: "file", 10: "link"}


class Reader:
    """An open directory as C programs have it."""

    def __init__(self, name):
        self.dir = libc.opendir(name.encode())

    def next(self):
        """(name, type), None at the end."""
        entry = libc.readdir(self.dir)
        if not entry:
            return None
        return ctypes.string_at(entry + 19).decode(), TYPES[ctypes.string_at(entry + 18, 1)[0]]

    def rest(self):
        out = []
        while entry := self.next():
            out.append(entry)
        return out

    def tell(self):
        return libc.telldir(self.dir)

    def seek(self, place):
        libc.seekdir(self.dir, place)

    def rewind(self):
        libc.rewinddir(self.dir)


@case
def mkdir_over_everything(t):
    make("f")
    os.mkdir("d")
    os.symlink("d", "l")
    os.symlink("nowhere", "dangling")
    for name in ("f", "d", "l", "dangling", ".", "..", "d/.", "d/..", "f/x", "no/x", "", "d/", "l/", "f/", "dangling/", "new/", "new//x//"):
        t.tried(name, os.mkdir, name)
    t.says("tree", tree())


@case
def rmdir_of_everything(t):
    make("f")
    os.makedirs("full/inside")
    os.mkdir("empty")
    os.mkdir("empty2")
    os.symlink("empty", "l")
    for name in ("f", "full", "l", "l/", ".", "..", "full/.", "full/..", "full/inside/..", "no", "no/x", "f/", "", "empty2/", "empty", "empty"):
        t.says(f"{name} {len(t.all)}", outcome(os.rmdir, name))
    t.says("tree", tree())


@case
def unlink_of_everything(t):
    make("f")
    os.mkdir("d")
    os.symlink("d", "l")
    os.symlink("nowhere", "dangling")
    for name in ("d", "d/", "l/", "f/", ".", "..", "no", "no/x", "f/x", "", "l", "dangling", "f", "f"):
        t.says(f"{name} {len(t.all)}", outcome(os.unlink, name))
    t.says("tree", tree())


@case
def unlinkat_with_flags(t):
    make("f")
    os.mkdir("d")
    for name, flags in (("f", 0x200), ("d", 0), ("f", 0x400), ("d", 0x200), ("f", 0)):
        t.says(f"{name} {flags:#x}", outcome(lambda: None if libc.unlinkat(-100, name.encode(), flags) == 0 else _raise()))


def _raise():
    number = ctypes.get_errno()
    raise OSError(number, "")


@case
def link_counts_of_folders(t):
    os.mkdir("d")
    t.says("empty", look("d"))
    for i in range(5):
        os.mkdir(f"d/sub{i}")
        make(f"d/f{i}")
        os.symlink("x", f"d/l{i}")
    t.says("five", look("d"))
    os.rmdir("d/sub0")
    os.unlink("d/f0")
    t.says("four", look("d"))
    os.rename("d/sub1", "moved")
    t.says("three", look("d"))


@case
def folders_are_removed_while_in_use(t):
    os.makedirs("d/sub")
    fd = os.open("d/sub", os.O_RDONLY)
    os.chdir("d/sub")
    t.tried("not empty", os.rmdir, "../../d")
    t.tried("rmdir", os.rmdir, "../sub")
    t.tried("getcwd", os.getcwd)
    t.tried("listing", os.listdir, ".")
    t.tried("listing by descriptor", os.listdir, fd)
    t.tried("create", os.open, "f", os.O_CREAT | os.O_WRONLY)
    t.tried("mkdir", os.mkdir, "x")
    t.tried("symlink", os.symlink, "a", "b")
    t.tried("link", os.link, "/proc/self/fd/0", "b")
    t.tried("stat", os.stat, ".")
    t.says("links", os.fstat(fd).st_nlink)
    t.tried("fchmod", os.fchmod, fd, 0o700)
    t.tried("lookup", os.stat, "x")
    t.tried("again", os.mkdir, "../sub")
    t.says("the new one is another", os.stat("../sub").st_ino != os.fstat(fd).st_ino)
    t.tried("fsync", os.fsync, fd)


@case
def folders_made_again_and_again(t):
    for i in range(50):
        os.mkdir("d")
        make("d/f", str(i).encode())
        t.says(f"{i}", (os.listdir("d"), content("d/f")))
        os.unlink("d/f")
        os.rmdir("d")


@case
def listings_of_every_size(t):
    for count in (0, 1, 10, 300):
        os.mkdir(f"d{count}")
        for i in range(count):
            make(f"d{count}/{i:04}" + "n" * (i % 200))
        reader = Reader(f"d{count}")
        got = reader.rest()
        t.says(f"{count}", (len(got), sorted(n for n, _ in got if n in (".", "..")), len({n for n, _ in got}) == len(got),
                            sorted(n for n, _ in got) == sorted([".", ".."] + os.listdir(f"d{count}"))))


@case
def types_in_listings(t):
    make("f")
    os.mkdir("d")
    os.symlink("f", "l")
    t.says("types", sorted(Reader(".").rest()))


@case
def numbers_in_listings(t):
    os.makedirs("a/b")
    make("a/f")
    libc.readdir.restype = ctypes.c_void_p
    reader, got = Reader("a"), {}
    while entry := libc.readdir(reader.dir):
        got[ctypes.string_at(entry + 19)] = ctypes.c_uint64.from_address(entry).value
    t.says("equal", {name: number == os.stat(b"a/" + name).st_ino for name, number in sorted(got.items())})


@case
def listings_while_names_come_and_go(t):
    """What is there all the time is told exactly once, what comes or goes at most once."""
    for i in range(300):
        make(f"stay{i}")
        make(f"go{i}")
    reader = Reader(".")
    got = [reader.next()[0] for _ in range(50)]
    for i in range(300):
        os.unlink(f"go{i}")
        make(f"come{i}")
    got += [name for name, _ in reader.rest()]
    t.says("stayed", sorted(n for n in got if n.startswith("stay")) == sorted(f"stay{i}" for i in range(300)))
    t.says("once", len(set(got)) == len(got))
    t.says("afterwards", (len(os.listdir(".")), any(n.startswith("go") for n in os.listdir("."))))


@case
def removing_what_was_just_listed(t):
    for i in range(500):
        make(f"f{i}" + "n" * 100)
    with os.scandir(".") as entries:
        for entry in entries:
            os.unlink(entry.name)
    t.says("left", os.listdir("."))


@case
def places_in_a_listing(t):
    for i in range(200):
        make(f"f{i}")
    reader, places, names = Reader("."), [], []
    while True:
        places.append(reader.tell())
        entry = reader.next()
        if entry is None:
            break
        names.append(entry)
    t.says("count", len(names))
    again = []
    for i in (150, 3, 0, 77, len(names) - 1):
        reader.seek(places[i])
        again.append(reader.next() == names[i])
    t.says("found again", again)
    reader.seek(places[100])
    t.says("rest", reader.rest() == names[100:])
    reader.seek(places[-1])
    t.says("end", reader.next())
    reader.rewind()
    t.says("from the start", reader.rest() == names)


@case
def rewinding_shows_what_is_new(t):
    make("old")
    reader = Reader(".")
    t.says("first", sorted(n for n, _ in reader.rest()))
    make("new")
    os.unlink("old")
    reader.rewind()
    t.says("second", sorted(n for n, _ in reader.rest()))
    fd = os.open(".", os.O_RDONLY)
    os.listdir(fd)
    make("newer")
    t.says("same descriptor", sorted(os.listdir(fd)))


@case
def two_readers_of_one_folder(t):
    for i in range(100):
        make(f"f{i}")
    a, b = Reader("."), Reader(".")
    first = [a.next() for _ in range(30)]
    whole = b.rest()
    t.says("independent", (first == whole[:30], a.rest() == whole[30:]))
    fd = os.open(".", os.O_RDONLY)
    twin = os.dup(fd)
    t.says("shared", (len(os.listdir(fd)), len(os.listdir(twin))))


@case
def folders_by_descriptor(t):
    os.makedirs("a/b")
    fd = os.open("a", os.O_RDONLY | os.O_DIRECTORY)
    path = os.open("a/b", os.O_PATH | os.O_DIRECTORY)
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.mkdir("sub", dir_fd=path)
    os.symlink("x", "l", dir_fd=path)
    os.rename("f", "g", src_dir_fd=fd, dst_dir_fd=path)
    t.says("tree", tree())
    os.fchdir(path)
    t.says("here", sorted(os.listdir(".")))
    t.tried("list a path", os.listdir, path)
    os.rename("../../a", "../../z")
    t.says("moved", (sorted(os.listdir(fd)), os.path.basename(os.path.dirname(os.getcwd()))))
    os.unlink("g", dir_fd=path)
    t.tried("a file", os.stat, "x", dir_fd=os.open(make("file"), os.O_RDONLY))


@case
def many_processes_fill_one_folder(t):
    ends = in_children(4, lambda i: [make(f"{i}-{k}", b"x") for k in range(50)] and 0)
    t.says("all there", (ends, len(os.listdir("."))))
    ends = in_children(4, lambda i: [os.unlink(f"{i}-{k}") for k in range(50)] and 0)
    t.says("all gone", (ends, os.listdir(".")))


@case
def a_listing_while_a_process_fills_the_folder(t):
    for i in range(100):
        make(f"stay{i}")

    def churn(i):
        for k in range(100):
            make(f"p{i}-{k}")
            os.rename(f"p{i}-{k}", f"q{i}-{k}")
            os.unlink(f"q{i}-{k}")

    def watch():
        for _ in range(15):
            names = os.listdir(".")
            if len(set(names)) != len(names) or sum(n.startswith("stay") for n in names) != 100:
                return 1
        return 0
    t.says("ends", in_children(3, lambda i: watch() if i == 0 else churn(i)))
    t.says("left", len(os.listdir(".")))


@case
def a_chroot_and_a_working_directory(t):
    os.makedirs("root/in")
    make("root/in/f", b"inside")
    os.symlink("/in/f", "root/l")

    def jailed():
        os.chroot("root")
        os.chdir("/")
        return 0 if content("/in/f") == content("/l") == b"inside" and os.listdir("/..") else 1
    t.says("jailed", in_child(jailed))
