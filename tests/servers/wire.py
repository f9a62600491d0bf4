"""HTTP/1.1 as bytes: heads that stay as they were sent, bodies in pieces.

Nothing is normalized, because signatures cover the headers. A body is decoded while it passes, and framed again as its
head says.
"""

import select
import socket
import struct

PIECE = 256 << 10
HEAD_BYTES_MAX = 256 << 10
DRAIN_BYTES_MAX = 256 << 20
DRAIN_S = 2


class Head:
    """The first line and the headers of a request or a reply."""

    def __init__(self, raw):
        lines = raw.split(b"\r\n")
        self.first = lines[0].split(b" ", 2)
        if len(self.first) < 2:
            raise ConnectionError(f"not HTTP: {lines[0][:80]!r}")
        self.lines = [line for line in lines[1:] if line]

    def get(self, name):
        """A header's value, or None; of several the first."""
        for line in self.lines:
            key, _, value = line.partition(b":")
            if key.lower() == name.lower().encode():
                return value.strip().decode("latin-1")
        return None

    def set(self, name, value):
        """Replaces a header, or removes it when the value is None."""
        self.lines = [line for line in self.lines if line.partition(b":")[0].lower() != name.lower().encode()]
        if value is not None:
            self.lines.append(f"{name}: {value}".encode("latin-1"))

    def names(self):
        return [line.partition(b":")[0].decode("latin-1") for line in self.lines]

    @property
    def status(self):
        return int(self.first[1])

    @property
    def closes(self):
        return (self.get("Connection") or "").lower() == "close" or b"HTTP/1.0" in self.first

    @property
    def is_chunked(self):
        return "chunked" in (self.get("Transfer-Encoding") or "").lower()

    @property
    def length(self):
        """Bytes of the body by Content-Length, or None."""
        text = self.get("Content-Length")
        return None if text is None or self.is_chunked else int(text)

    def __bytes__(self):
        return b"\r\n".join([b" ".join(self.first), *self.lines, b"", b""])


class Stream:
    """A connected socket, and what was read from it too early."""

    def __init__(self, sock):
        self.sock = sock
        self.early = bytearray()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fill(self):
        data = self.sock.recv(64 << 10)
        self.early += data
        return bool(data)

    def read_until(self, mark, limit):
        while (at := self.early.find(mark)) < 0:
            if len(self.early) > limit:
                raise ConnectionError("a head or a line of a body is too long")
            if not self.fill():
                raise ConnectionError("the stream ended in a head")
        raw = bytes(self.early[:at])
        del self.early[:at + len(mark)]
        return raw

    def read_head(self):
        """The next head, or None when the stream has ended before it."""
        if not self.early and not self.fill():
            return None
        return Head(self.read_until(b"\r\n\r\n", HEAD_BYTES_MAX))

    def read_exactly(self, length):
        """Pieces of so many bytes; of all there are, when it is None. A piece is valid until the next one is asked for."""
        left = length
        if self.early and left != 0:
            data = bytes(self.early if left is None else self.early[:left])
            del self.early[:len(data)]
            left = None if left is None else left - len(data)
            yield data
        room = memoryview(bytearray(PIECE if left is None else min(left, PIECE)))
        while left != 0:
            n = self.sock.recv_into(room if left is None else room[:left])
            if not n and left is not None:
                raise ConnectionError("the stream ended in a body")
            if not n:
                return
            left = None if left is None else left - n
            yield room[:n]

    def read_chunks(self):
        while True:
            size = int(self.read_until(b"\r\n", 1024).split(b";")[0], 16)
            if not size:
                break
            yield from self.read_exactly(size)
            self.read_until(b"\r\n", 2)
        # The trailers: no server here sends any.
        while self.read_until(b"\r\n", 8 << 10):
            pass

    def body(self, head, has_body=True, is_reply=False):
        """The pieces of the body that belongs to a head."""
        if not has_body:
            return iter(())
        if head.is_chunked:
            return self.read_chunks()
        if head.length is None and not is_reply:
            return iter(())
        return self.read_exactly(head.length)

    def is_readable(self):
        return bool(self.early) or bool(select.select([self.sock], [], [], 0)[0])

    def send(self, data):
        self.sock.sendall(data)

    def send_unless_reply(self, data):
        """Sends, but stops when the other side says something; returns what was not sent."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN | select.POLLOUT)
        view = memoryview(data)
        while view:
            if self.early or poll.poll()[0][1] & ~select.POLLOUT:
                break
            view = view[self.sock.send(view, socket.MSG_DONTWAIT):]
        return view

    def reset(self):
        """Closes with a reset: the other side gets ECONNRESET."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def finish(self):
        """Closes so that the other side can read all that was sent, although it is sending still."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
            self.sock.settimeout(DRAIN_S)
            for _ in range(DRAIN_BYTES_MAX // PIECE):
                if not self.sock.recv(PIECE):
                    break
        except OSError:
            pass
        self.sock.close()


def frame(head, piece):
    """A piece of a body as it goes on the wire after this head."""
    return b"%x\r\n%b\r\n" % (len(piece), bytes(piece)) if head.is_chunked else piece


def last_frame(head):
    return b"0\r\n\r\n" if head.is_chunked else b""
