"""A real object server on loopback: started, killed, started again, removed. Each server script is a class of this.

    NAME install                     installs the server, when it is not there
    NAME up DIR [--until PID] [--tls]
                                     starts it with its data in DIR, which is made; prints its settings as lines NAME=VALUE
    NAME kill DIR                    kill -9; the data stays
    NAME restart DIR                 ends it in order, unless it was killed, and starts it with the same data, ports and keys
    NAME down DIR                    kill -9, and removes DIR

The settings are environment variables: CKPT_TEST_S3_SERVER, CKPT_TEST_S3_ENDPOINT, CKPT_TEST_S3_BUCKET,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION. Ports are free ones; keys are new for each `up`.

With --tls the endpoint is https://127.0.0.1:PORT, and AWS_CA_BUNDLE its certificate, which is not for the name "localhost".
With --until the server is removed when that process ends, by a kill too. `up` exits when the server has answered
a signed write. The processes are known by id and start time, so that an id in use again is never killed.
"""

import argparse
import contextlib
import json
import os
import random
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from servers import s3

SOURCE = Path(__file__).resolve().parents[2]
VENV = Path(os.environ.get("CKPT_SERVERS_VENV") or SOURCE / "build/servers-venv")
# Below the kernel's range for outgoing connections (32768 and up), so that none of these takes a port between two starts.
PORTS = range(10240, 21000)
START_S = 60
ATTEMPTS = 5


class Failed(Exception):
    """A server did not do what it should; the text says which, what, and where its log is."""


def is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count, distance=0):
    """`count` ports in a row, each of them free; with a distance, so are the ports that lie so far above them."""
    for _ in range(1000):
        first = random.choice(PORTS)
        ports = range(first, first + count)
        if all(is_free(p) and (not distance or is_free(p + distance)) for p in ports):
            return list(ports)
    raise Failed(f"no {count} free ports in a row from {PORTS.start} to {PORTS.stop}")


def start_time(pid):
    """The start of a process in ticks since the boot, or None when it has ended. A zombie has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def end(processes, how=signal.SIGKILL, wait_s=20):
    """Ends processes given as [pid, start time]; those that do not end in time are killed."""
    for pid, began in processes:
        if start_time(pid) == began:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
    deadline = time.monotonic() + wait_s
    while any(start_time(pid) == began for pid, began in processes):
        if time.monotonic() > deadline:
            if how == signal.SIGKILL:
                raise Failed(f"processes do not end: {processes}")
            return end(processes)
        time.sleep(0.01)
    return None


class ObjectServer:
    name = None  # what the script and CKPT_TEST_S3_SERVER say
    has_tls = False

    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        self.state = {}

    # Each server has its own of these.

    @classmethod
    def install(cls):
        subprocess.run([SOURCE / "tests/servers/venv"], check=True, stdout=sys.stderr)

    def choose_ports(self):
        """The ports of a new server; the first one is that of S3."""
        return free_ports(1)

    def prepare(self):
        """Writes the files that the server needs before its first start."""

    def launch(self):
        """Starts the server's processes with self.spawn()."""
        raise NotImplementedError

    def cleanup(self):
        """Removes files of a dead server outside of its folder."""

    # All servers share these.

    @property
    def port(self):
        return self.state["ports"][0]

    @property
    def data(self):
        return self.folder / "data"

    @property
    def log(self):
        return self.folder / "log"

    @property
    def certificate(self):
        return self.folder / "certificate.pem"

    @property
    def certificate_key(self):
        return self.folder / "certificate.key"

    def make_certificate(self):
        names = "subjectAltName=IP:127.0.0.1,DNS:*.localhost"
        done = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=127.0.0.1",
                               "-addext", names, "-keyout", self.certificate_key, "-out", self.certificate],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"{self.name}: no certificate: {done.stderr}")

    def settings(self):
        tls = {"AWS_CA_BUNDLE": str(self.certificate)} if self.state["tls"] else {}
        return tls | {
            "CKPT_TEST_S3_SERVER": self.name,
            "CKPT_TEST_S3_ENDPOINT": f"{'https' if tls else 'http'}://127.0.0.1:{self.port}",
            "CKPT_TEST_S3_BUCKET": self.state["bucket"],
            "AWS_ACCESS_KEY_ID": self.state["key"],
            "AWS_SECRET_ACCESS_KEY": self.state["secret"],
            "AWS_REGION": "us-east-1",
        }

    def load(self):
        try:
            self.state = json.loads((self.folder / "server.json").read_text())
        except FileNotFoundError:
            raise Failed(f"no {self.name} was started in {self.folder}") from None

    def save(self):
        new = self.folder / "server.json.new"
        new.write_text(json.dumps(self.state))
        new.replace(self.folder / "server.json")

    def spawn(self, command, **environment):
        """A process of the server, in a session of its own, so that no terminal's or test's signal reaches it."""
        with open(self.log, "ab") as log:
            child = subprocess.Popen([str(c) for c in command], cwd=self.folder, env=os.environ | environment, stdin=subprocess.DEVNULL,
                                     stdout=log, stderr=log, start_new_session=True)
        self.state["processes"].append([child.pid, start_time(child.pid)])
        self.save()
        return child


    def is_ready(self):
        """A signed write passes: servers answer before they can store anything."""
        probe = f"/{self.state['bucket']}/.probe"
        try:
            status, _ = s3.request(self.settings(), "PUT", f"/{self.state['bucket']}")
            if status not in (200, 409):
                return False
            return s3.request(self.settings(), "PUT", probe, b"x")[0] == 200 and s3.request(self.settings(), "DELETE", probe)[0] == 204
        except OSError:
            return False

    def start(self):
        self.state["processes"] = []
        try:
            self.launch()
            self.wait_for(self.is_ready, "its start", START_S)
        except BaseException:
            self.stop()
            raise

    def wait_for(self, is_done, what, seconds, needed=None):
        """Fails when it takes too long, or when one of the needed processes ends; by default all that were spawned."""
        deadline = time.monotonic() + seconds
        while not is_done():
            if any(start_time(pid) != began for pid, began in (self.state["processes"] if needed is None else needed)):
                raise Failed(f"{self.name} ended during {what}")
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} did not finish {what} in {seconds} s")
            time.sleep(0.02)

    def stop(self, how=signal.SIGKILL):
        end(self.state["processes"], how)
        self.state["processes"] = []
        self.save()
        self.cleanup()

    def log_tail(self):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-10:]) if self.log.exists() else ""

    def up(self, until=None, tls=False):
        if tls and not self.has_tls:
            raise Failed(f"{self.name} is started without TLS alone")
        if (self.folder / "server.json").exists():
            raise Failed(f"a server is in {self.folder} already")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.state = {"bucket": "ckptfs", "key": "CKPT" + secrets.token_hex(8).upper(), "secret": secrets.token_hex(20), "processes": [],
                      "keeper": [], "tls": tls}
        self.save()
        if until:
            self.keep(until)
        try:
            # Another process may take a port that was free when it was chosen.
            self.insist(self.start_empty)
        except BaseException:
            self.remove()
            raise
        return self.settings()

    def start_empty(self):
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "server.json":
                path.unlink()
        self.data.mkdir()
        self.state["ports"] = self.choose_ports()
        if self.state["tls"]:
            self.make_certificate()
        self.prepare()
        self.start()

    def insist(self, act):
        for attempt in range(ATTEMPTS):
            try:
                return act()
            except Failed as e:
                if attempt == ATTEMPTS - 1:
                    raise Failed(f"{e}; the last lines of its log:\n{self.log_tail()}") from None

    def keep(self, until):
        """Leaves a process behind that removes the server when process `until` has ended."""
        command = [sys.executable, Path(sys.argv[0]).resolve().with_name(self.name), "keep", self.folder, str(until)]
        keeper = subprocess.Popen(command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  start_new_session=True)
        self.state["keeper"] = [[keeper.pid, start_time(keeper.pid)]]
        self.save()

    def wait_and_remove(self, until):
        with contextlib.suppress(ProcessLookupError):
            fd = os.pidfd_open(until)
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll()
        self.load()
        self.state["keeper"] = []  # that is us
        self.remove()

    def kill(self):
        self.load()
        self.stop()

    def restart(self):
        self.load()
        self.stop(signal.SIGTERM)
        self.insist(self.start)
        return self.settings()

    def down(self):
        self.load()
        self.remove()

    def remove(self):
        end(self.state["keeper"])
        self.stop()
        shutil.rmtree(self.folder)


def main(server):
    parser = argparse.ArgumentParser(prog=server.name, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("install")
    for verb in ("up", "kill", "restart", "down", "keep"):
        sub = verbs.add_parser(verb)
        sub.add_argument("folder", metavar="DIR")
        if verb == "up":
            sub.add_argument("--until", type=int, metavar="PID")
            sub.add_argument("--tls", action="store_true")
        if verb == "keep":
            sub.add_argument("until", type=int)
    words = parser.parse_args()
    try:
        if words.verb == "install":
            return server.install()
        it = server(words.folder)
        if words.verb == "keep":
            return it.wait_and_remove(words.until)
        settings = it.up(words.until, words.tls) if words.verb == "up" else getattr(it, words.verb)()
    except (Failed, subprocess.CalledProcessError, OSError) as e:
        sys.exit(f"{server.name}: {e}")
    for name, value in (settings or {}).items():
        print(f"{name}={value}")
    return None
