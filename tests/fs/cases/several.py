"""Several processes at once: races that have one winner, and changes that are seen whole or not at all."""

import errno
import fcntl
import mmap
import os

from frame import EXCHANGE, case, content, in_children, look, make, rename2

RACERS = 4


def _winners(t, name, rounds, attempt, lost):
    """Of every round exactly one process wins, and all others get the same error."""
    seen = set()
    for i in range(rounds):
        ends = in_children(RACERS, lambda k: attempt(i, k) and 0)
        seen.add((ends.count(0), tuple(sorted({errno.errorcode.get(e, e) for e in ends if e}))))
    t.says(name, (sorted(seen) == [(1, (lost,))] or sorted(seen)))


@case
def one_creates_a_file_exclusively(t):
    _winners(t, "create", 15, lambda i, k: os.close(os.open(f"f{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)), "EEXIST")


@case
def one_makes_a_folder(t):
    _winners(t, "mkdir", 15, lambda i, k: os.mkdir(f"d{i}"), "EEXIST")


@case
def one_makes_a_link(t):
    make("f")
    _winners(t, "link", 15, lambda i, k: os.link("f", f"l{i}"), "EEXIST")
    _winners(t, "symlink", 15, lambda i, k: os.symlink("x", f"s{i}"), "EEXIST")


@case
def one_removes(t):
    for i in range(15):
        make(f"f{i}")
        os.mkdir(f"d{i}")
    _winners(t, "unlink", 15, lambda i, k: os.unlink(f"f{i}"), "ENOENT")
    _winners(t, "rmdir", 15, lambda i, k: os.rmdir(f"d{i}"), "ENOENT")


@case
def one_renames(t):
    for i in range(15):
        make(f"f{i}")
        make(f"g{i}-{0}")
    _winners(t, "away", 15, lambda i, k: os.rename(f"f{i}", f"n{i}-{k}"), "ENOENT")


@case
def all_open_what_one_creates(t):
    for i in range(10):
        in_children(RACERS, lambda k: os.pwrite(os.open(f"f{i}", os.O_CREAT | os.O_RDWR), bytes([65 + k]), k) and 0)
    t.says("contents", sorted({content(f"f{i}") for i in range(10)}))


@case
def records_appended_by_all_stay_whole(t):
    def append(k):
        fd = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for i in range(60):
            os.write(fd, b"%d-%03d " % (k, i) + bytes([65 + k]) * 250 + b"\n")
    ends = in_children(RACERS, append)
    lines = content("log").splitlines()
    whole = all(len(line) == 256 and len(set(line[6:])) == 1 for line in lines)
    order = all([l for l in lines if l.startswith(b"%d-" % k)] == sorted(l for l in lines if l.startswith(b"%d-" % k)) for k in range(RACERS))
    t.says("all", (ends, len(lines), whole, order))


@case
def writers_of_one_file_each_have_their_part(t):
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY))

    def write(k):
        fd = os.open("f", os.O_WRONLY)
        for i in range(50):
            os.pwrite(fd, bytes([65 + k]) * 1000, (i * RACERS + k) * 1000)
    t.says("ends", in_children(RACERS, write))
    data = content("f")
    t.says("parts", all(data[i * 1000:(i + 1) * 1000] == bytes([65 + i % RACERS]) * 1000 for i in range(50 * RACERS)))


@case
def mappings_of_one_file_each_have_their_part(t):
    make("f", bytes(RACERS * 5000))

    def store(k):
        m = mmap.mmap(os.open("f", os.O_RDWR), RACERS * 5000)
        m[k * 5000:(k + 1) * 5000] = bytes([65 + k]) * 5000
    t.says("ends", in_children(RACERS, store))
    t.says("parts", content("f") == b"".join(bytes([65 + k]) * 5000 for k in range(RACERS)))


@case
def a_file_that_is_replaced_is_always_there_and_whole(t):
    make("f", b"0" * 3000)

    def replace(k):
        for i in range(40):
            make(f"new{k}", bytes([48 + i % 10]) * 3000)
            os.rename(f"new{k}", "f")

    def read(k):
        for _ in range(150):
            data = content("f")
            if len(data) != 3000 or len(set(data)) != 1:
                return 1
        return 0
    t.says("ends", in_children(RACERS, lambda k: replace(k) if k < 2 else read(k)))


@case
def two_files_that_are_exchanged_are_always_there(t):
    make("a", b"A" * 100)
    make("b", b"B" * 100)

    def swap(k):
        for _ in range(60):
            rename2("a", "b", EXCHANGE)

    def read(k):
        for _ in range(150):
            if content("a")[:1] not in b"AB" or not content("b"):
                return 1
        return 0
    t.says("ends", in_children(3, lambda k: swap(k) if k == 0 else read(k)))
    t.says("after", (content("a")[:1], content("b")[:1]))


@case
def folders_moved_around_by_all(t):
    for k in range(RACERS):
        os.makedirs(f"home{k}/d{k}")
        make(f"home{k}/d{k}/f", str(k).encode())

    def move(k):
        for i in range(24):
            os.rename(f"home{(k + i) % RACERS}/d{k}", f"home{(k + i + 1) % RACERS}/d{k}")
    t.says("ends", in_children(RACERS, move))
    t.says("back home", [(sorted(os.listdir(f"home{k}")), content(f"home{k}/d{k}/f"), look(f"home{k}")) for k in range(RACERS)])


@case
def a_counter_under_a_lock_loses_nothing(t):
    make("n", b"0")

    def count(k):
        for _ in range(30):
            fd = os.open("n", os.O_RDWR)
            fcntl.lockf(fd, fcntl.LOCK_EX) if k % 2 else fcntl.lockf(fd, fcntl.LOCK_EX)
            value = int(os.pread(fd, 20, 0)) + 1
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(value).encode(), 0)
            os.close(fd)
    t.says("ends", in_children(RACERS, count))
    t.says("sum", content("n"))


@case
def a_file_cut_and_appended_at_once_has_whole_records(t):
    def act(k):
        fd = os.open("f", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for i in range(40):
            if k == 0 and i % 10 == 0:
                os.ftruncate(fd, 0)
            os.write(fd, bytes([65 + k]) * 64)
    t.says("ends", in_children(RACERS, act))
    data = content("f")
    t.says("records", (len(data) % 64, all(len(set(data[i:i + 64])) == 1 for i in range(0, len(data), 64))))


@case
def trees_made_and_removed_side_by_side(t):
    def work(k):
        for i in range(10):
            os.makedirs(f"shared/{k}/a/b", exist_ok=True)
            make(f"shared/{k}/a/b/f", b"x")
            os.rename(f"shared/{k}/a", f"shared/{k}/c")
            os.unlink(f"shared/{k}/c/b/f")
            os.removedirs(f"shared/{k}/c/b") if i == 9 else (os.rmdir(f"shared/{k}/c/b"), os.rmdir(f"shared/{k}/c"))
    os.mkdir("shared")
    make("shared/keep")
    t.says("ends", in_children(RACERS, work))
    t.says("left", os.listdir("shared"))
