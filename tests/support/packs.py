"""The packs of a store, as files: to damage them, and to see what that does."""

from support.mounting import errno_name


def packs(store):
    return sorted((store / "packs").iterdir())


def flip(path, at):
    """Changes a bit, or mends it."""
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 0x40]))


def unreadable(top, made):
    """The files whose read fails, with EIO; all others have their bytes."""
    failed = set()
    for path, data in made.items():
        try:
            got = (top / path).read_bytes()
        except OSError as e:
            assert errno_name(e) == "EIO", path
            failed.add(path)
            continue
        assert got == data, f"{path}: wrong bytes"
    return failed


def clean(ckptfs, store):
    """All is as it was sealed."""
    answer = ckptfs.json("verify", "--read-data", store)
    assert answer["bad"] == [] and answer["unsealed"] == 0, answer
    assert ckptfs.json("verify", store)["bad"] == []
