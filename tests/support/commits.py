"""What the tests of the commit rules share: markers closed by an agent, and what must hold after a commit."""

from support import trees

OPEN_MARKER = "fd = os.open(step + '/.finalize', os.O_CREAT | os.O_WRONLY, 0o644)"


def listed(mount):
    return mount.listing() == ["1000"]


def close_error(agent_, fd="fd"):
    return agent_.errno_of(f"os.close({fd})")


def assert_whole(mount, made, name="1000"):
    """The step is listed with just these bytes, and is so from a fresh start too."""
    for _ in range(2):
        assert name in mount.listing()
        assert trees.files(mount / name) == made
        mount.remount()


def error_line(mount, *words):
    """The newest line of .ckptfs/errors has all these words."""
    lines = mount.errors()
    assert lines, "nothing in .ckptfs/errors"
    for word in words:
        assert word in lines[-1], f"{word!r} is not in {lines[-1]!r}"
