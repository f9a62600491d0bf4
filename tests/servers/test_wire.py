"""The fault proxy passes HTTP/1.1 as it is, between a client and a server that are plain sockets here."""

import contextlib
import socket
import threading

import pytest

from servers.fault_proxy import Proxy
from servers.wire import Head, Stream

MIB = 1 << 20
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def upstream():
    """Starts a server whose connections each do what they are given; returns a proxy in front of it."""
    with contextlib.ExitStack() as stack:
        def start(serve):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def accept():
                with contextlib.suppress(OSError):
                    while True:
                        threading.Thread(target=run, args=(listener.accept()[0],), daemon=True).start()

            def run(sock):
                with sock, contextlib.suppress(OSError, Ended):
                    serve(Stream(sock))

            threading.Thread(target=accept, daemon=True).start()
            return Proxy(f"http://127.0.0.1:{listener.getsockname()[1]}")
        yield start


class Ended(Exception):
    """The proxy has closed its connection to the server."""


def next_head(stream):
    head = stream.read_head()
    if not head:
        raise Ended
    return head


def connect(proxy):
    sock = socket.create_connection(proxy.listener.getsockname(), timeout=20)
    return Stream(sock)


def whole(stream, **kind):
    """The next message: its head and its body."""
    head = next_head(stream)
    return head, b"".join(bytes(piece) for piece in stream.body(head, **kind))


def test_heads_are_the_same_bytes_at_the_other_end(upstream):
    seen = []

    def serve(stream):
        seen.append(stream.read_until(b"\r\n\r\n", MIB))
        stream.send(b"HTTP/1.1 200 Fine Indeed\r\nx-ODD:  spaced \r\nx-odd: twice\r\nContent-Length: 0\r\n\r\n")

    client = connect(upstream(serve))
    request = b"GET /b/k%2F?b=2&a=%20 HTTP/1.1\r\nhOST: example:1\r\nAuthorization:AWS4\r\nX-A: 1\r\nX-A: 2"
    client.send(request + b"\r\n\r\n")
    assert client.read_until(b"\r\n\r\n", MIB) == b"HTTP/1.1 200 Fine Indeed\r\nx-ODD:  spaced \r\nx-odd: twice\r\nContent-Length: 0"
    assert seen == [request]


def test_chunked_bodies_pass_both_ways(upstream):
    def serve(stream):
        while True:
            _, body = whole(stream)
            stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyou\r\n%x;ext=1\r\n%b\r\n0\r\n\r\n" % (len(body), body))

    client = connect(upstream(serve))
    data = bytes(range(256)) * 4000
    for _ in range(3):
        client.send(b"PUT /b/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
        head, body = whole(client, is_reply=True)
        assert head.is_chunked and body == b"youfirst" + data


def test_a_reply_without_a_length_ends_with_the_connection(upstream):
    def serve(stream):
        whole(stream)
        stream.send(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * MIB)

    client = connect(upstream(serve))
    client.send(b"GET /b/k HTTP/1.1\r\n\r\n")
    assert whole(client, is_reply=True)[1] == b"x" * MIB


@pytest.mark.parametrize("waits", [True, False])
def test_100_continue_passes(upstream, waits):
    def serve(stream):
        while True:
            head = next_head(stream)
            stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            assert sum(len(piece) for piece in stream.body(head)) == 1000
            stream.send(OK)

    client = connect(upstream(serve))
    for _ in range(2):
        client.send(b"PUT /b/k HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n")
        if waits:
            assert client.read_head().status == 100
        client.send(b"x" * 1000)
        if not waits:
            assert client.read_head().status == 100
        assert whole(client, is_reply=True)[1] == b"ok"


def test_a_refusal_instead_of_100_continue_leaves_the_body_with_the_client(upstream):
    def serve(stream):
        next_head(stream)
        stream.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")

    client = connect(upstream(serve))
    client.send(b"PUT /b/k HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n")
    head, body = whole(client, is_reply=True)
    assert (head.status, body) == (403, b"no")
    assert client.read_head() is None


def test_a_refusal_in_the_middle_of_a_body_reaches_the_client(upstream):
    left = threading.Event()

    def serve(stream):
        head = next_head(stream)
        next(stream.body(head))
        stream.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        left.wait(20)  # the rest of the body is not read

    client = connect(upstream(serve))
    client.send(b"PUT /b/k HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (64 * MIB))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(64):
            if client.send_unless_reply(bytes(MIB)):
                break
    head, body = whole(client, is_reply=True)
    left.set()
    assert (head.status, body) == (403, b"no")


def test_replies_without_a_body_keep_the_connection(upstream):
    def serve(stream):
        while True:
            head = next_head(stream)
            stream.send(b"HTTP/1.1 %b\r\n\r\n" % {
                b"HEAD": b"200 OK\r\nContent-Length: 77", b"DELETE": b"204 No Content", b"GET": b"304 Not Modified\r\nContent-Length: 5",
            }[head.first[0]])

    proxy = upstream(serve)
    client = connect(proxy)
    for method, status in ((b"HEAD", 200), (b"DELETE", 204), (b"GET", 304), (b"HEAD", 200)):
        client.send(method + b" /b/k HTTP/1.1\r\n\r\n")
        assert client.read_head().status == status
    assert proxy.counts()["connections"] == 1


def test_a_connection_that_the_server_has_closed_is_made_again(upstream):
    def serve(stream):
        whole(stream)
        stream.send(OK)  # and closes, without having said so

    client = connect(upstream(serve))
    for _ in range(5):
        client.send(b"GET /b/k HTTP/1.1\r\n\r\n")
        assert whole(client, is_reply=True)[1] == b"ok"
        wait_for_close()


def wait_for_close():
    """The server's end of the connection arrives at the proxy, on the same machine."""
    threading.Event().wait(0.1)


def test_a_server_that_ends_in_mid_body_is_seen_as_such(upstream):
    def serve(stream):
        whole(stream)
        stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this")

    client = connect(upstream(serve))
    client.send(b"GET /b/k HTTP/1.1\r\n\r\n")
    with pytest.raises(ConnectionError):
        whole(client, is_reply=True)


def test_bytes_that_are_not_http_end_the_connection(upstream):
    proxy = upstream(lambda stream: stream.send(b"220 mail.example\r\n\r\n"))
    for garbage in (b"\0\0\0\r\n\r\n", b"x" * MIB):
        client = connect(proxy)
        with contextlib.suppress(ConnectionError):
            client.send(garbage)
            assert client.read_head() is None


def test_a_head_tells_its_parts():
    head = Head(b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\netag: \"b\"\r\nContent-Length: 12")
    assert (head.status, head.get("ETAG"), head.length) == (200, '"a"', 12)
    head.set("etag", "c")
    assert bytes(head) == b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\netag: c\r\n\r\n"
