"""A client process on a leash: it makes the system calls that a test wants made by a process of its own.

The test's own process then never hangs in a call, can kill the client in the middle of one, and sees the errno of each.

    a = Agent()
    a.run("fd = os.open(path, os.O_WRONLY)", path=str(file))   # OSError is raised here as it was there
    a.start("os.close(fd)"); ...; a.result(timeout=5)          # the same without waiting
    a.kill(); a.wait_gone(1.0)

Code runs in one name space for the agent's life; the value of a last expression is the result.
"""

import ast
import errno
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import time
import traceback


# Any user can run the system's Python; the one that runs the tests may lie where others cannot look.
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else os.path.realpath(sys.executable)
_LOADER = """import os, sys
text = b""
while len(text) < int(sys.argv[1]):
    text += os.read(0, int(sys.argv[1]) - len(text))
exec(text)"""


def _where(pid):
    """What holds a process and its children up, for whoever reads the failure."""
    try:
        with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/wchan") as wchan, open(f"/proc/{pid}/task/{pid}/children") as children:
            here = f"{' '.join(stat.read().rpartition(')')[2].split()[:1])} in {wchan.read() or '?'}"
            below = [_where(int(child)) for child in children.read().split()]
    except OSError as e:
        return str(e)
    return f"{here}; child: {'; '.join(below)}" if below else here


class AgentError(Exception):
    """The agent's code raised something that is not an OSError; has its traceback."""


class Agent:
    def __init__(self, uid=None, cwd="/", prefix=()):
        who = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
        with open(os.path.abspath(__file__), "rb") as source:
            text = source.read()
        # The source goes through the pipe: a client of another user may not be able to read this folder.
        self._process = subprocess.Popen(
            [*prefix, PYTHON, "-S", "-E", "-c", _LOADER, str(len(text))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd, bufsize=0, **who)
        self._process.stdin.write(text)
        self.busy = False
        self.pid = self.run("os.getpid()")

    def start(self, code, **variables):
        assert not self.busy, "the agent is still in the call before"
        message = pickle.dumps((code, variables))
        self._process.stdin.write(struct.pack("<I", len(message)) + message)
        self.busy = True

    def result(self, timeout=30.0):
        kind, value = pickle.loads(self._read(timeout))
        self.busy = False
        if kind == "oserror":
            raise OSError(value[0], os.strerror(value[0]), value[1])
        if kind == "error":
            raise AgentError(value)
        return value

    def run(self, code, timeout=30.0, **variables):
        self.start(code, **variables)
        return self.result(timeout)

    def errno_of(self, code, timeout=30.0, **variables):
        """The name of the error that the code ends with, or None."""
        try:
            self.run(code, timeout, **variables)
        except OSError as e:
            return "EOPNOTSUPP" if e.errno == errno.EOPNOTSUPP else errno.errorcode[e.errno]  # one number, two names
        return None

    def still_busy(self, seconds):
        """True when the call has not returned after that long."""
        return self.busy and not select.select([self._process.stdout], [], [], seconds)[0]

    def kill(self, sig=signal.SIGKILL):
        os.kill(self._process.pid, sig)

    def wait_gone(self, timeout):
        """Waits for the process to end; how long that took in seconds. TimeoutError when it did not."""
        began = time.monotonic()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"process {self._process.pid} is still there after {timeout} s") from None
        self.busy = False
        return time.monotonic() - began

    def exit(self, status=0):
        """Ends without closing anything by itself."""
        self.start("os._exit(status)", status=status)
        self.wait_gone(30)
        return self._process.returncode

    def close(self):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(20)
        self._process.stdin.close()
        self._process.stdout.close()

    def _read(self, timeout):
        deadline = time.monotonic() + timeout
        (size,) = struct.unpack("<I", self._read_exactly(4, deadline))
        return self._read_exactly(size, deadline)

    def _read_exactly(self, count, deadline):
        data = b""
        while len(data) < count:
            if not select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"the call of process {self._process.pid} has not returned: {_where(self._process.pid)}")
            piece = os.read(self._process.stdout.fileno(), count - len(data))
            if not piece:
                raise AgentError(f"the agent has ended: {self._process.wait(20)}")
            data += piece
        return data


def _execute(code, names):
    tree = ast.parse(code)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    exec(compile(tree, "<agent>", "exec"), names)
    return eval(compile(last, "<agent>", "eval"), names) if last else None


def _serve():
    import ctypes
    import fcntl
    import mmap
    import socket
    import stat
    import threading

    names = dict(os=os, mmap=mmap, fcntl=fcntl, socket=socket, stat=stat, struct=struct, time=time, signal=signal, threading=threading,
                 ctypes=ctypes, errno=errno)
    # The name space outlives each call: what a call opened stays open.
    requests, replies = os.fdopen(os.dup(0), "rb", buffering=0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)

    def exactly(count):
        data = b""
        while len(data) < count:
            piece = requests.read(count - len(data))
            if not piece:
                os._exit(0)
            data += piece
        return data

    while True:
        (size,) = struct.unpack("<I", exactly(4))
        code, variables = pickle.loads(exactly(size))
        names.update(variables)
        try:
            reply = ("ok", _execute(code, names))
        except OSError as e:
            reply = ("oserror", (e.errno, str(e.filename)))
        except BaseException:
            reply = ("error", traceback.format_exc())
        message = pickle.dumps(reply)
        os.write(replies, struct.pack("<I", len(message)) + message)


if __name__ == "__main__" and len(sys.argv) > 1 and sys.argv[1].isdigit():
    _serve()
