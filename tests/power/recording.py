"""A recording: a disk's first state, the log of its writes, and the record of what the clients were told meanwhile."""

import json
import threading
from pathlib import Path

from power import disks
from support.acts import Client, Record
from support.mounting import Mount

# Each client's folders.
FOLDERS = [["", "keep/"], ["run/"]]


class Recording:
    """What is in a folder: base.img (the disk before the log began), final.img (after its end), log, record.json."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.base, self.final, self.log = self.folder / "base.img", self.folder / "final.img", self.folder / "log"
        self.about = about = json.loads((self.folder / "record.json").read_text())
        self.filesystem, self.seed, self.acts = about["filesystem"], about["seed"], about["acts"]

    def keep(self, folder):
        """A copy that outlives the test, holes and all."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("base.img", "final.img", "log", "record.json"):
            disks.copy(self.folder / name, folder / name)
        return Recording(folder)


def make(world, folder, filesystem, seed, acts, work=None):
    """Runs the clients on a new disk; `acts` is how many each of them does. work: what is done there instead, given the store's place on the
    disk and the record, which says what else is kept beside the acts."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    image, log, point, mountpoint = folder / "final.img", folder / "log", folder / "disk", folder / "mnt"
    point.mkdir()
    mountpoint.mkdir()
    disks.make(filesystem, image)
    disks.copy(image, folder / "base.img")
    with disks.LoggedDisk(world, image, log) as disk:
        disks.mount(disk.device, point, filesystem)
        try:
            record = Record(disk.log.position)
            more = work(point / "store", mountpoint, record, disk.log.position) if work else _work(world, point / "store", mountpoint, record, seed, acts)
        finally:
            disks.umount(disk.device, point)
    (folder / "record.json").write_text(json.dumps({"filesystem": filesystem, "seed": seed, "acts": record.acts} | (more or {})))
    return Recording(folder)


def _work(world, store, mountpoint, record, seed, acts):
    use(world, Mount.new(world, store, path=mountpoint), store, record, seed, acts)


def use(world, mount, store, record, seed, acts, meanwhile=None):
    """The clients work in the mount, and it ends. meanwhile: is called again and again until they are done."""
    for folder in ("keep", "run"):
        with record.act(f"mkdir {folder}"):
            (mount / folder).mkdir()
    clients = [Client(f"{seed} {i}", mount.path, store, world.program, record, folders, acts) for i, folders in enumerate(FOLDERS)]
    threads = [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()
    while meanwhile and any(thread.is_alive() for thread in threads):
        meanwhile()
    for thread in threads:
        thread.join()
    told = mount.errors()
    mount.umount()
    for client in clients:
        if client.problem:
            raise AssertionError(f"{record.acts[-1]['what']}: {client.problem}; errors: {told}") from client.problem
