"""Daemons whose fsync is that of a bad disk: it hangs, or loses what was written."""

from support.preload import preload


class BadSyncs:
    """Whoever is started with `prefix` has the fsync of a bad disk."""

    def __init__(self, world):
        self._folder = world.scratch / "syncs"
        self._folder.mkdir()
        world.callback(self.go_on)
        self.prefix = preload(world, "sync_shim", SYNC_SHIM=self._folder)

    def hang(self, only=""):
        """only: a letter of counted()."""
        (self._folder / "hang").write_text(only)

    def go_on(self):
        (self._folder / "hang").unlink(missing_ok=True)

    def die(self, only=""):
        """only: a letter of counted()."""
        (self._folder / "dead").write_text(only)

    def live(self):
        (self._folder / "dead").unlink()

    def count(self):
        """From now on; counted() says how many there were."""
        (self._folder / "count").write_bytes(b"")

    def counted(self):
        return (self._folder / "count").read_text()

    def fail_next(self):
        (self._folder / "fail").touch()
