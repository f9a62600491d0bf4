"""rename(2) and renameat2(2): everything over everything, and what must not change on the way."""

import os

from frame import (AT_FDCWD, EXCHANGE, NOREPLACE, WHITEOUT, call, case, case_for, content, look, make, outcome, pattern, rename2, tree)

FLAGS = {"plain": 0, "noreplace": NOREPLACE, "exchange": EXCHANGE}
KINDS = ("missing", "file", "dir", "full", "link", "dirlink", "dangling")


def stand(kind, name):
    if kind == "file":
        make(name, name.encode())
    elif kind in ("dir", "full"):
        os.mkdir(name)
        if kind == "full":
            make(f"{name}/inside", b"in")
    elif kind == "link":
        make("target", b"t")
        os.symlink("target", name)
    elif kind == "dirlink":
        os.makedirs("targetdir", exist_ok=True)
        os.symlink("targetdir", name)
    elif kind == "dangling":
        os.symlink("nowhere", name)


def _matrix(t, how, source, folders):
    for i, target in enumerate(KINDS):
        top = f"at{i}"
        os.mkdir(top)
        os.chdir(top)
        names = ("a", "b")
        if folders:
            os.mkdir("one")
            os.mkdir("two")
            names = ("one/a", "two/b")
        stand(source, names[0])
        stand(target, names[1])
        t.says(f"over {target}", (outcome(rename2, *names, FLAGS[how]), tree()))
        os.chdir("..")


@case_for(*(f"{how}_{kind}" for how in FLAGS for kind in KINDS))
def rename_in_one_folder(t, name):
    _matrix(t, *name.split("_"), folders=False)


@case_for(*(f"{how}_{kind}" for how in FLAGS for kind in KINDS))
def rename_across_folders(t, name):
    _matrix(t, *name.split("_"), folders=True)


@case
def rename_to_itself(t):
    make("f", b"x")
    os.mkdir("d")
    os.symlink("f", "l")
    for name in ("f", "d", "l"):
        t.tried(name, os.rename, name, name)
        for how, flags in FLAGS.items():
            t.tried(f"{name} {how}", rename2, name, name, flags)
    t.says("tree", tree())


@case
def rename_between_two_links_of_one_file(t):
    make("a", b"same")
    os.link("a", "b")
    os.mkdir("d")
    os.link("a", "d/c")
    t.tried("in one folder", os.rename, "a", "b")
    t.tried("across", os.rename, "a", "d/c")
    t.tried("exchange", rename2, "a", "d/c", EXCHANGE)
    t.tried("noreplace", rename2, "a", "b", NOREPLACE)
    t.says("tree", tree())
    os.unlink("b")
    t.says("left", tree())


@case
def rename_into_itself_and_onto_what_holds_it(t):
    os.makedirs("a/b/c")
    for how, flags in FLAGS.items():
        for source, target in (("a", "a/x"), ("a", "a/b"), ("a", "a/b/c/x"), ("a/b", "a"), ("a/b/c", "a")):
            t.tried(f"{how} {source} to {target}", rename2, source, target, flags)
    t.says("tree", tree())


@case
def rename_of_dot_and_dotdot(t):
    os.mkdir("d")
    for source, target in ((".", "x"), ("..", "x"), ("d/.", "x"), ("d/..", "x"), ("d", "."), ("d", ".."), ("d", "d/.")):
        t.tried(f"{source} to {target}", os.rename, source, target)


@case
def rename_with_trailing_slashes(t):
    for i, (kind, source, target) in enumerate([
            ("file", "a/", "b"), ("file", "a", "b/"), ("dir", "a/", "b"), ("dir", "a", "b/"), ("dir", "a/", "b/"), ("dir", "a//", "b//"),
            ("link", "a/", "b"), ("dirlink", "a/", "b"), ("dirlink", "a", "b/"), ("dangling", "a", "b/"), ("full", "a", "b/")]):
        os.mkdir(f"at{i}")
        os.chdir(f"at{i}")
        stand(kind, "a")
        t.says(f"{kind} {source} {target}", (outcome(os.rename, source, target), tree()))
        os.chdir("..")


@case
def rename_flags_that_are_none(t):
    make("a")
    make("b")
    t.tried("both", rename2, "a", "b", NOREPLACE | EXCHANGE)
    t.tried("unknown", rename2, "a", "c", 1 << 7)
    t.tried("whiteout and exchange", rename2, "a", "b", WHITEOUT | EXCHANGE)
    t.says("tree", tree())


@case
def rename_that_leaves_a_whiteout(t):
    make("a")
    t.tried("whiteout", rename2, "a", "b", WHITEOUT)


@case
def rename_names_that_are_too_long(t):
    make("a")
    for target in ("x" * 255, "y" * 256, "z/" * 2047 + "zz"):
        t.tried(f"{target[0]} {len(target)}", os.rename, "a", target)
        if os.path.lexists(target[:255]):
            os.rename(target[:255], "a")
    t.tried("from", os.rename, "x" * 256, "b")


@case
def rename_of_a_file_that_is_open(t):
    fd = os.open("a", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"before")
    ino = os.fstat(fd).st_ino
    os.rename("a", "b")
    os.write(fd, b" after")
    t.says("number stays", os.stat("b").st_ino == ino == os.fstat(fd).st_ino)
    t.says("content", content("b"))
    os.ftruncate(fd, 3)
    t.says("cut", content("b"))
    os.fchmod(fd, 0o600)
    t.says("mode", look("b"))
    os.mkdir("d")
    os.rename("b", "d/c")
    os.pwrite(fd, b"X", 0)
    os.close(fd)
    t.says("moved", content("d/c"))


@case
def rename_over_a_file_that_is_open(t):
    old = os.open("a", os.O_CREAT | os.O_RDWR)
    os.write(old, b"old")
    new = os.open("n", os.O_CREAT | os.O_RDWR)
    os.write(new, b"newer")
    os.rename("n", "a")
    t.says("name", content("a"))
    t.says("old", (os.pread(old, 10, 0), os.fstat(old).st_nlink))
    os.pwrite(old, b"OLD!", 0)
    t.says("old goes on", (os.pread(old, 10, 0), content("a")))
    os.pwrite(new, b"N", 0)
    t.says("new goes on", content("a"))
    os.fchmod(old, 0o600)
    t.says("mode", look("a"))


@case
def rename_of_a_folder_with_open_files_and_a_process_in_it(t):
    os.makedirs("a/b")
    fd = os.open("a/b/f", os.O_CREAT | os.O_RDWR)
    folder = os.open("a/b", os.O_RDONLY)
    os.chdir("a/b")
    os.rename("../../a", "../../z")
    os.write(fd, b"here")
    t.says("relative", content("f"))
    t.says("by name", content("../../z/b/f"))
    t.says("listing", os.listdir(folder))
    make("new", b"n")
    t.says("new", look("../../z/b/new"))
    t.tried("parent", os.stat, "../../a")
    os.rename("../../z/b", "../../y")
    t.says("dotdot", sorted(os.listdir("..")))
    t.says("up", os.stat("..").st_ino == os.stat("../y/..").st_ino)


@case
def rename_of_folders_moves_link_counts(t):
    os.makedirs("one/sub")
    os.mkdir("two")
    t.says("before", (look("one"), look("two")))
    os.rename("one/sub", "two/sub")
    t.says("after", (look("one"), look("two")))
    os.mkdir("one/sub")
    rename2("one/sub", "two/sub", EXCHANGE)
    t.says("exchanged", (look("one"), look("two")))
    os.rename("one/sub", "two/sub")
    t.says("replaced", (look("one"), look("two")))
    make("one/f")
    rename2("one/f", "two/sub", EXCHANGE)
    t.says("file for folder", (look("one"), look("two"), look("one/f"), look("two/sub")))


@case
def rename_drops_a_link_of_what_it_replaces(t):
    make("a", b"a")
    make("b", b"b")
    os.link("b", "other")
    t.says("before", look("other"))
    os.rename("a", "b")
    t.says("after", (look("other"), look("b"), content("other"), content("b")))


@case
def rename_keeps_number_attributes_and_extended_attributes(t):
    make("a", pattern(1000), 0o640)
    os.setxattr("a", "user.k", b"v")
    os.utime("a", ns=(1_000_000_000_123_456_789, 1_100_000_000_987_654_321))
    before = os.stat("a")
    os.mkdir("d")
    os.rename("a", "d/b")
    after = os.stat("d/b")
    t.says("number", before.st_ino == after.st_ino)
    t.says("times", (after.st_atime_ns, after.st_mtime_ns))
    t.says("attributes", (look("d/b"), os.getxattr("d/b", "user.k")))


@case
def rename_of_a_hundred_files_in_a_chain(t):
    for i in range(100):
        make(f"f{i}", str(i).encode())
    for i in range(100):
        os.rename(f"f{i}", f"f{(i + 1) % 100}" if i < 99 else "last")
    t.says("tree", tree())


@case
def rename_by_descriptors_of_folders(t):
    os.mkdir("x")
    os.mkdir("y")
    make("x/f", b"f")
    x, y = os.open("x", os.O_PATH), os.open("y", os.O_RDONLY)
    t.tried("move", os.rename, "f", "g", src_dir_fd=x, dst_dir_fd=y)
    t.tried("gone", os.stat, "f", dir_fd=x)
    t.tried("a file's descriptor", call, "renameat2", os.open("y/g", os.O_RDONLY), "a", AT_FDCWD, "b", 0)
    t.tried("none", call, "renameat2", 999, "a", AT_FDCWD, "b", 0)
    t.says("tree", tree())


@case
def rename_back_and_forth_is_seen_at_once(t):
    make("a", b"one")
    seen = []
    for i in range(20):
        names = ("a", "b") if i % 2 == 0 else ("b", "a")
        os.rename(*names)
        seen.append((outcome(os.stat, names[0]), content(names[1]), sorted(os.listdir("."))))
    t.says("seen", seen)


@case
def rename_over_the_empty_folder_one_is_in(t):
    os.mkdir("a")
    os.mkdir("b")
    make("a/f")
    os.chdir("b")
    t.tried("replace", os.rename, "../a", "../b")
    t.tried("here", os.listdir, ".")
    t.tried("make", os.open, "new", os.O_CREAT | os.O_WRONLY)
    t.tried("up", os.stat, "..")
    t.says("there", sorted(os.listdir("../b")) if os.path.exists("../b") else "ENOENT")
