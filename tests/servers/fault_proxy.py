#!/usr/bin/env python3
"""A proxy between a client and an object server that plays faults; tests/servers/schedule.py says which.

    fault_proxy.py --to ENDPOINT [--schedule JSON|FILE|seed:N] [--log FILE]

Prints CKPT_TEST_S3_ENDPOINT=..., then takes commands, a line of JSON each, and answers each with one, until stdin ends.
They come as `POST /-/fault-proxy`, too, with the command as the body, where the client cannot write to stdin; no bucket is named so.

    {"do": "play", "schedule": {...}}   from now on this one; an empty one disturbs nothing
    {"do": "counts"}                    {"requests": N, "connections": N, "by_op": {...}, "by_fault": {...}, "bytes_in": N, "bytes_out": N,
                                         "late": N}
    {"do": "forget"}                    counts from zero
    {"do": "settle"}                    waits until all late requests have reached the server

--log has a line of JSON for each request, written when it is over, and one for the delivery of each late request:

    n, op, method, bucket, key, query, conditional    which request; without what signs it
    did, rule     the fault and the rule's number, null when the request was not disturbed
    status        the server's reply; null when there is none, or it was not asked
    answer        the client's: a status, "reset", "cut" (an end in mid-body), "gone" (the client had left)
    moot          a fault that found nothing to act on, as a flip in an empty body
    bytes_in, bytes_out, ms                           bodies as the client sent and got them, and how long it took
    late          in lines of late requests: the number of the request that it is about

The proxy changes nothing that it is not told to: heads and bodies pass as they are, since signatures cover them, the Host header
too. Each connection of a client has one to the server, for as long as the client keeps it. Threads: one for each connection.
What it cannot play: faults below HTTP, like lost packets.
"""

import argparse
import json
import select
import socket
import sys
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import faults  # noqa: E402
from servers.schedule import LISTINGS, Schedule, operation, read_schedule  # noqa: E402
from servers.wire import Head, Stream, frame, last_frame  # noqa: E402

SPOOL_BYTES = 16 << 20
COUNTS_S = 1
CONTROL = b"/-/fault-proxy"
COMMAND_BYTES_MAX = 1 << 20
# Of a query only these are logged: others may sign it.
LOGGED = {"list-type", "prefix", "delimiter", "continuation-token", "start-after", "marker", "max-keys", "encoding-type", "partNumber",
          "uploadId", "uploads", "delete", "location", "versioning", "lifecycle", "key-marker", "upload-id-marker"}


class Gone(ConnectionError):
    """The client has left, or the server has: the text says which."""


class Request:
    """A request of a client: its head, and what it is about."""

    def __init__(self, head):
        self.head = head
        self.method = head.first[0].decode("latin-1")
        path, _, query = head.first[1].decode("latin-1").partition("?")
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        path = urllib.parse.unquote(path).lstrip("/")
        host = (head.get("Host") or "").partition(":")[0]
        if host.endswith(".localhost"):
            self.bucket, key = host.removesuffix(".localhost"), path
        else:
            self.bucket, _, key = path.partition("/")
        self.op = operation(self.method, self.bucket, key, self.query, {name.lower(): True for name in head.names()})
        self.key = self.query.get("prefix", "") if self.op in LISTINGS else key
        self.is_conditional = bool(head.get("If-Match") or head.get("If-None-Match"))
        self.is_continued = bool(self.query.keys() & {"continuation-token", "start-after", "marker"})
        self.expects = (head.get("Expect") or "").lower() == "100-continue"
        self.page_of = (self.bucket, self.key, self.query.get("delimiter"))

    def log_line(self):
        query = {k: v for k, v in self.query.items() if k in LOGGED}
        return {"op": self.op, "method": self.method, "bucket": self.bucket, "key": self.key, "query": query,
                "conditional": self.is_conditional, "did": None, "rule": None, "status": None, "answer": None,
                "bytes_in": 0, "bytes_out": 0}


class Pace:
    """A rate that several threads share: each waits for its turn."""

    def __init__(self, mb_per_s):
        self.bytes_per_s = mb_per_s * 1e6 if mb_per_s else None
        self.free_at = 0.0
        self.lock = threading.Lock()

    def take(self, count):
        if not self.bytes_per_s:
            return
        with self.lock:
            self.free_at = max(self.free_at, time.monotonic()) + count / self.bytes_per_s
            until = self.free_at
        time.sleep(max(0, until - time.monotonic()))


class Connection(threading.Thread):
    """A client's connection, and the one to the server that belongs to it."""

    def __init__(self, proxy, sock):
        super().__init__(daemon=True)
        self.proxy = proxy
        self.client = Stream(sock)
        self.server = None
        self.line = {}

    def run(self):
        try:
            while self.serve_one():
                pass
        except (OSError, ValueError) as e:
            self.proxy.complain(e)
            self.client.reset()
        finally:
            self.disconnect()
            self.client.sock.close()

    def serve_one(self):
        """One request. Returns whether the connection goes on."""
        try:
            head = self.client.read_head()
        except OSError:
            head = None
        if not head:
            self.client.sock.close()
            return False
        if head.first[1] == CONTROL:
            return self.obey(head)
        request = Request(head)
        schedule = self.proxy.schedule
        rule = schedule.choose(request)
        began = time.monotonic()
        self.line = request.log_line()
        if self.proxy.clock:
            self.line["times"] = [self.proxy.clock(), None]
        self.proxy.begin()
        if rule:
            self.line |= {"did": rule.do, "rule": rule.number}
        try:
            goes_on = getattr(faults, rule.do.replace("-", "_") if rule else "nothing")(self, request, rule)
        except (OSError, ValueError) as e:
            self.line |= {"answer": self.line["answer"] or ("gone" if isinstance(e, Gone) else "reset"), "error": str(e)}
            self.client.reset()
            goes_on = False
        finally:
            self.line["ms"] = round((time.monotonic() - began) * 1e3, 1)
            self.proxy.note(self.line)
        return goes_on and not head.closes

    def obey(self, head):
        """A command to the proxy: neither counted nor logged."""
        if (head.length or 0) > COMMAND_BYTES_MAX:
            raise ValueError("a command is too long")
        status, answer = self.proxy.answer(b"".join(bytes(piece) for piece in self.client.body(head)))
        self.client.send(b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" %
                         (status, faults.reason(status), len(answer), answer))
        return not head.closes

    # Towards the server.

    def connect(self):
        """The connection to the server; a new one when the server has closed the last."""
        if self.server and self.server.is_readable():
            self.server.sock.close()
            self.server = None
        if not self.server:
            self.server = Stream(socket.create_connection(self.proxy.upstream))

    def disconnect(self):
        if self.server:
            self.server.sock.close()
        self.server = None

    def body_of(self, request):
        """The pieces of the request's body as they come from the client, counted, at the link's rate."""
        for piece in self.client.body(request.head):
            self.line["bytes_in"] += len(piece)
            self.proxy.up.take(len(piece))
            yield piece

    def send_request(self, request, change=None):
        """Sends head and body, and returns the head of the reply. `change` makes other pieces of the body's.

        The server may reply before it has all of the body: the rest is not sent then, and the client's connection cannot go on.
        """
        self.connect()
        self.server.send(bytes(request.head))
        early = self.wait_for_continue(request) if request.expects else None
        if early:
            return early
        pieces = self.body_of(request)
        for piece in change(pieces) if change else pieces:
            data = frame(request.head, piece)
            while data := self.server.send_unless_reply(data):
                # One of 1xx comes here when the client has not waited for it.
                reply = self.read_reply()
                if reply:
                    reply.is_early = True
                    return reply
        self.server.send(last_frame(request.head))
        return self.read_final()

    def wait_for_continue(self, request):
        """Passes 100 Continue on; the head of a final reply that comes instead is returned, and the body stays with the client."""
        while not self.server.is_readable():
            if self.client.is_readable():
                return None
            select.select([self.server.sock, self.client.sock], [], [])
        reply = self.read_reply()
        if not reply:
            return None
        reply.is_early = True
        return reply

    def read_reply(self):
        """The head of a reply; one of 1xx is passed on to the client, and None is returned."""
        reply = self.server.read_head()
        if not reply:
            raise Gone("the server closed the connection")
        if reply.status < 200:
            self.client.send(bytes(reply))
            return None
        reply.is_early = False
        self.line["status"] = reply.status
        if self.proxy.clock:
            self.line["times"][1] = self.proxy.clock()
        return reply

    def read_final(self):
        while True:
            reply = self.read_reply()
            if reply:
                return reply

    def reply_body(self, request, reply):
        """The pieces of the reply's body as they come from the server."""
        has_body = request.method != "HEAD" and reply.status not in (204, 304)
        return self.server.body(reply, has_body, is_reply=True)

    # Towards the client.

    def send_reply(self, request, reply, pieces, cut=False, pace=None):
        """Passes a reply on. With `cut` the client's connection ends after it. Returns whether the connection goes on."""
        self.line["answer"] = reply.status
        self.client.send(bytes(reply))
        for piece in pieces:
            (pace or self.proxy.down).take(len(piece))
            self.line["bytes_out"] += len(piece)
            self.client.send(frame(reply, piece))
        if cut:
            return self.end("cut")
        if request.method != "HEAD":
            self.client.send(last_frame(reply))
        if reply.is_early or reply.closes or (reply.length is None and not reply.is_chunked and request.method != "HEAD" and
                                              reply.status not in (204, 304)):
            self.disconnect()
            self.client.finish()
            return False
        return True

    def end(self, how):
        """Ends the client's connection, by a reset or in order, and the server's with it."""
        self.line["answer"] = how
        self.disconnect()
        if how == "reset":
            self.client.reset()
        else:
            self.client.finish()
        return False

    def drain(self, request):
        """Takes the request's body from the client, for nobody. A client that waits for 100 Continue keeps it."""
        if not request.expects:
            for _ in self.body_of(request):
                pass

    def discard_reply(self, request, reply):
        for _ in self.reply_body(request, reply):
            pass

    def answer(self, request, status, headers, body):
        """A reply of the proxy's own. Returns whether the connection goes on."""
        raw = b"HTTP/1.1 %d %b\r\n" % (status, faults.reason(status))
        headers = {"Content-Type": "application/xml", "Content-Length": len(body)} | headers
        # The body of a client that waits for 100 Continue may come all the same: the connection cannot be used again.
        if request.expects:
            headers["Connection"] = "close"
        reply = Head(raw + b"".join(f"{k}: {v}\r\n".encode() for k, v in headers.items()) + b"\r\n")
        reply.is_early = False
        return self.send_reply(request, reply, [] if request.method == "HEAD" else [body])

    def spool(self, request):
        """The whole request, to be sent later; a client that waits for 100 Continue is told to go on."""
        if request.expects:
            self.client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        spool = tempfile.SpooledTemporaryFile(SPOOL_BYTES)
        for piece in self.body_of(request):
            spool.write(frame(request.head, piece))
        spool.write(last_frame(request.head))
        spool.seek(0)
        return spool


class Proxy:
    # Of a subclass: says what time it is. Each request's line has then "times": when it came, and when the server's reply did, which is
    # before the client gets it; None where there was none.
    clock = None

    def __init__(self, endpoint, schedule=None, log=None):
        address = urllib.parse.urlsplit(endpoint)
        if address.scheme != "http":
            raise ValueError(f"the proxy speaks http alone: {endpoint}")
        self.upstream = (address.hostname, address.port or 80)
        self.lock = threading.Lock()
        self.is_settled = threading.Condition(self.lock)
        self.log = open(log, "a", buffering=1, encoding="utf-8") if log else None
        self.pages = {}  # of listings: the last one, for each listing
        self.late = self.active = 0
        self.forget()
        self.play(schedule)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def accept(self):
        while True:
            sock = self.listener.accept()[0]
            with self.lock:
                self.connections += 1
            Connection(self, sock).start()

    def play(self, words):
        schedule = Schedule(words)
        self.up, self.down = Pace(schedule.mb_per_s), Pace(schedule.mb_per_s)
        self.schedule = schedule

    def forget(self):
        with self.lock:
            self.requests = self.connections = self.bytes_in = self.bytes_out = 0
            self.by_op, self.by_fault = {}, {}

    def counts(self):
        """Waits a moment for requests whose reply the client has, but which are not counted yet."""
        with self.lock:
            self.is_settled.wait_for(lambda: not self.active, COUNTS_S)
            return {"requests": self.requests, "connections": self.connections, "by_op": self.by_op, "by_fault": self.by_fault,
                    "bytes_in": self.bytes_in, "bytes_out": self.bytes_out, "late": self.late}

    def begin(self):
        with self.lock:
            self.active += 1

    def note(self, line):
        """Counts a request that is over, and logs it."""
        with self.lock:
            self.active -= 1
            self.is_settled.notify_all()
            self.requests += 1
            self.by_op[line["op"]] = self.by_op.get(line["op"], 0) + 1
            if line["did"] and not line.get("moot"):
                self.by_fault[line["did"]] = self.by_fault.get(line["did"], 0) + 1
            self.bytes_in += line["bytes_in"]
            self.bytes_out += line["bytes_out"]
            self.write({"n": self.requests} | line)

    def write(self, line):
        if self.log:
            self.log.write(json.dumps(line) + "\n")

    def complain(self, what):
        with self.lock:
            self.write({"error": f"{what!r}"})

    def deliver_late(self, request, spool, seconds):
        """Sends a whole request to the server after a while, on a connection of its own."""
        with self.lock:
            self.late += 1
        threading.Thread(target=self.run_late, args=(request, spool, seconds), daemon=True).start()

    def run_late(self, request, spool, seconds):
        line = {"late": True} | {k: v for k, v in request.log_line().items() if k in ("op", "method", "bucket", "key", "query", "conditional")}
        time.sleep(seconds)
        try:
            server = Stream(socket.create_connection(self.upstream))
            server.send(bytes(request.head))
            while data := spool.read(256 << 10):
                server.send(data)
            reply = server.read_head()
            while reply and reply.status < 200:
                reply = server.read_head()
            line["status"] = reply.status if reply else None
            for _ in server.body(reply, reply.status != 204, is_reply=True) if reply else ():
                pass
            server.sock.close()
        except OSError as e:
            line |= {"status": None, "error": str(e)}
        with self.lock:
            self.late -= 1
            self.write(line)
            self.is_settled.notify_all()

    def settle(self):
        with self.is_settled:
            self.is_settled.wait_for(lambda: not self.late)

    def obey(self, command):
        do = command.get("do")
        if do == "play":
            self.play(command["schedule"])
        elif do in ("forget", "settle"):
            getattr(self, do)()
        elif do != "counts":
            raise ValueError(f"no such command: {do}")
        return self.counts()

    def answer(self, command):
        """(status, JSON) of a command in JSON."""
        try:
            return 200, json.dumps(self.obey(json.loads(command))).encode()
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            return 400, json.dumps({"error": str(e)}).encode()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", required=True, metavar="ENDPOINT")
    parser.add_argument("--schedule")
    parser.add_argument("--log")
    words = parser.parse_args()
    proxy = Proxy(words.to, read_schedule(words.schedule) if words.schedule else None, words.log)
    print(f"CKPT_TEST_S3_ENDPOINT={proxy.endpoint}", flush=True)
    for line in sys.stdin:
        print(proxy.answer(line)[1].decode(), flush=True)


if __name__ == "__main__":
    main()
