"""Other mounts of a bucket, for `remote`: s3fs, rclone and JuiceFS, each with the settings that were fastest for it.

A mount is a context; leaving it ends the program and removes its caches. save() returns when the bytes are in the bucket:
s3fs and rclone send a file before its close returns, JuiceFS before its fsync does. What is not installed is said and left out.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

AT_ONCE = 4


class Other:
    program = ""  # found in PATH, or in build/servers-venv/bin

    def __init__(self, server, endpoint, scratch, folders):
        self.server, self.endpoint = server, endpoint
        self.keys = server.settings["AWS_ACCESS_KEY_ID"], server.settings["AWS_SECRET_ACCESS_KEY"]
        self.path = pathlib.Path(tempfile.mkdtemp(dir=scratch, prefix="mnt-"))
        self.work = pathlib.Path(tempfile.mkdtemp(dir=scratch, prefix="work-"))
        self.kept = folders  # of this kind of mount, over all its mounts
        self.process = None

    @classmethod
    def where(cls):
        venv = os.environ.get("CKPT_SERVERS_VENV") or pathlib.Path(__file__).resolve().parents[2] / "build/servers-venv"
        return shutil.which(cls.program) or shutil.which(cls.program, path=f"{venv}/bin")

    def words(self):
        """The command of a mount that stays in the foreground."""
        raise NotImplementedError

    def environment(self):
        # rclone ends when it finds a list of authorities there which it cannot use.
        return {k: v for k, v in os.environ.items() if k != "AWS_CA_BUNDLE"}

    def __enter__(self):
        self.process = subprocess.Popen(self.words(), env=self.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while not os.path.ismount(self.path):
            if self.process.poll() is not None or time.monotonic() > until:
                self.__exit__()
                raise SystemExit(f"tests/bench/remote: {self.program} does not mount")
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        subprocess.run(["fusermount3", "-u", self.path], check=False, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            subprocess.run(["umount", "-l", self.path], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.work, ignore_errors=True)
        self.path.rmdir()

    def save(self, step, files):
        (self.path / step).mkdir()
        write(files, self.path / step)

    def restore(self, step, files, to):
        def one(path):
            subprocess.run(["cp", self.path / step / path.name, to / path.name], check=True)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, files))


class S3fs(Other):
    program = "s3fs"

    def words(self):
        keys = self.work / "keys"
        keys.write_text(":".join(self.keys), encoding="ascii")
        keys.chmod(0o600)
        return [self.where(), self.server.bucket, self.path, "-f", "-o", f"url={self.endpoint},use_path_request_style,passwd_file={keys}",
                "-o", f"parallel_count=16,multipart_size=16,tmpdir={self.work}"]


class Rclone(Other):
    program = "rclone"

    def words(self):
        config = self.work / "config"
        config.write_text(f"[s3]\ntype = s3\nprovider = Other\nendpoint = {self.endpoint}\naccess_key_id = {self.keys[0]}\n"
                          f"secret_access_key = {self.keys[1]}\nchunk_size = 16M\nupload_concurrency = 8\n", encoding="ascii")
        return [self.where(), "mount", f"s3:{self.server.bucket}", self.path, "--config", config, "--buffer-size", "64M",
                "--cache-dir", self.work]


class JuiceFS(Other):
    """Its file system outlives the mounts: names and places are in a database beside them, the bytes in the bucket."""
    program = "juicefs"

    def words(self):
        meta = f"sqlite3://{self.kept}/juicefs.db"
        if not (self.kept / "juicefs.db").exists():
            subprocess.run([self.where(), "format", "--storage", "s3", "--bucket", f"{self.endpoint}/{self.server.bucket}", "--access-key",
                            self.keys[0], "--secret-key", self.keys[1], "--trash-days", "0", meta, "juicefs"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return [self.where(), "mount", "--no-usage-report", "--cache-dir", self.work, meta, self.path]


OTHERS = {"s3fs": S3fs, "rclone": Rclone, "JuiceFS": JuiceFS}


def write(files, to):
    """Several at once, each to its fsync."""
    def one(path):
        shutil.copyfile(path, to / path.name)
        with contextlib.suppress(OSError), open(to / path.name, "rb") as f:
            os.fsync(f.fileno())
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, files))
