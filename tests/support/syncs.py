"""Daemons whose fsync is that of a bad disk: it hangs, or loses what was written."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]


class BadSyncs:
    """Whoever is started with `prefix` has the fsync of a bad disk."""

    def __init__(self, world):
        scratch = world.scratch
        library, self._folder = scratch / "sync_shim.so", scratch / "syncs"
        self._folder.mkdir()
        subprocess.run(["cc", "-D_GNU_SOURCE", "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library,
                        SOURCE / "tests/fs/clients/sync_shim.c", "-ldl"], check=True)
        world.callback(self.go_on)
        self.prefix = ["env", f"LD_PRELOAD={library}", f"SYNC_SHIM={self._folder}"]

    def hang(self):
        (self._folder / "hang").touch()

    def go_on(self):
        (self._folder / "hang").unlink(missing_ok=True)

    def fail_next(self):
        (self._folder / "fail").touch()
