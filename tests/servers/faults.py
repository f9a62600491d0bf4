"""The faults of tests/servers/schedule.py: each is a function with its name, of a connection, a request and the rule.

It returns True when the client's connection goes on.
"""

import base64
import hashlib
import http
import re
import time

from servers.schedule import LISTINGS

DOCUMENT_BYTES_MAX = 16 << 20
CODES = {307: "TemporaryRedirect", 400: "RequestTimeout", 403: "AccessDenied", 404: "NoSuchKey", 409: "ConditionalRequestConflict",
         412: "PreconditionFailed", 429: "SlowDown", 500: "InternalError", 503: "SlowDown", 507: "InsufficientStorage"}
CHECKSUM = re.compile(r"x-amz-checksum-(crc32|crc32c|crc64nvme|sha1|sha256)", re.IGNORECASE)
CONTENTS = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)


def reason(status):
    try:
        return http.HTTPStatus(status).phrase.encode()
    except ValueError:
        return b"Unknown"


def error_document(request, code):
    return (f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>The fault proxy says so.</Message>'
            f"<Resource>/{request.bucket}</Resource><RequestId>FAULTPROXY</RequestId></Error>").encode()


def nothing(c, request, _rule):
    reply = c.send_request(request)
    if c.proxy.schedule.remembers_pages and request.op in LISTINGS and reply.status == 200:
        return edit_page(c, request, reply, lambda page: page)
    return c.send_reply(request, reply, c.reply_body(request, reply))


# Faults of the connection, and replies instead of the server's.


def reset_before(c, _request, _rule):
    return c.end("reset")


def cut_request(c, request, rule):
    c.connect()
    c.server.send(bytes(request.head))
    left = rule.get("bytes", 0)
    if request.expects and left:
        c.wait_for_continue(request)
    for piece in c.body_of(request) if left else ():
        c.server.send(piece[:left])
        left -= len(piece[:left])
        if not left:
            break
    c.server.reset()
    c.server = None
    return c.end("reset")


def reset_after(c, request, _rule):
    c.discard_reply(request, c.send_request(request))
    return c.end("reset")


def late(c, request, rule):
    c.proxy.deliver_late(request, c.spool(request), rule.get("seconds", 1))
    if "answer" not in rule.words:
        return c.end("reset")
    request.expects = False  # its body is here
    return c.answer(request, rule.get("answer"), {}, error_document(request, CODES.get(rule.get("answer"), "InternalError")))


def refuse(c, request, rule, status, code):
    if rule.get("applied"):
        reply = c.send_request(request)
        c.discard_reply(request, reply)
        if reply.is_early:
            return c.end("reset")
        request.expects = False
    else:
        c.drain(request)
    return c.answer(request, status, rule.get("headers", {}), error_document(request, rule.get("code", code)))


def status(c, request, rule):
    number = rule.get("status", 500)
    return refuse(c, request, rule, number, CODES.get(number, "InternalError"))


def expired_token(c, request, rule):
    return refuse(c, request, rule, rule.get("status", 403), "ExpiredToken")


def ok_with_error(c, request, rule):
    return refuse(c, request, rule, 200, "InternalError")


# Time.


def stall(c, request, rule):
    where, seconds = rule.get("where", "request"), rule.get("seconds", 1)
    if where == "request":
        time.sleep(seconds)
    reply = c.send_request(request)
    if where == "reply":
        time.sleep(seconds)
    pieces = c.reply_body(request, reply)
    return c.send_reply(request, reply, stalled(pieces, rule.get("bytes", 0), seconds) if where == "body" else pieces)


def stalled(pieces, after, seconds):
    """The same bytes, with a wait before byte `after`."""
    for piece in pieces:
        if 0 <= after < len(piece):
            if after:
                yield piece[:after]
            time.sleep(seconds)
            yield piece[after:]
        else:
            yield piece
        after -= len(piece)


def slow(c, request, rule):
    reply = c.send_request(request)
    return c.send_reply(request, reply, small(c.reply_body(request, reply)), pace=type(c.proxy.down)(rule.get("mb_per_s", 1)))


def small(pieces, most=16 << 10):
    for piece in pieces:
        for at in range(0, len(piece), most):
            yield piece[at:at + most]


# Bodies.


def first(pieces, count):
    for piece in pieces:
        if count <= 0:
            break
        yield piece[:count]
        count -= len(piece)


def truncate(c, request, rule):
    reply = c.send_request(request)
    if request.method == "HEAD" or not reply.length:
        c.line["moot"] = True
        return c.send_reply(request, reply, c.reply_body(request, reply))
    keep = rule.get("bytes", reply.length // 2)
    goes_on = c.send_reply(request, reply, first(c.reply_body(request, reply), keep), cut=not rule.get("reset"))
    return c.end("reset") if goes_on else goes_on


def wrong_length(c, request, rule):
    reply = c.send_request(request)
    by = rule.get("by", 1)
    pieces = c.reply_body(request, reply)
    if request.method == "HEAD" or not reply.length or reply.length + by < 0:
        c.line["moot"] = True
        return c.send_reply(request, reply, pieces)
    length = reply.length + by
    reply.set("Content-Length", length)
    # Bytes beyond the length would be taken for the next reply: they are left out.
    return c.send_reply(request, reply, first(pieces, length), cut=True)


def flipped(pieces, at, bit):
    for piece in pieces:
        if 0 <= at < len(piece):
            piece = bytearray(piece)
            piece[at] ^= 1 << bit
        yield piece
        at -= len(piece)


def flip(c, request, rule):
    def at(head):
        return rule.get("at", (head.length or 0) // 2)
    bit = rule.get("bit", 0)
    if rule.get("where", "reply") == "request":
        c.line["moot"] = not request.head.length
        reply = c.send_request(request, lambda pieces: flipped(pieces, at(request.head), bit))
        return c.send_reply(request, reply, c.reply_body(request, reply))
    reply = c.send_request(request)
    c.line["moot"] = request.method == "HEAD" or not reply.length
    return c.send_reply(request, reply, flipped(c.reply_body(request, reply), at(reply), bit))


# Headers.


def bad_checksum(c, request, _rule):
    reply = c.send_request(request)
    names = [name for name in reply.names() if CHECKSUM.fullmatch(name)]
    for name in names or ["x-amz-checksum-crc32"]:
        right = base64.b64decode(reply.get(name) or "AAAAAA==")
        reply.set(name, base64.b64encode(bytes([right[0] ^ 1]) + right[1:]).decode())
    return c.send_reply(request, reply, c.reply_body(request, reply))


def bad_etag(c, request, _rule):
    reply = c.send_request(request)
    etag = reply.get("ETag")
    c.line["moot"] = not etag
    if etag:
        reply.set("ETag", f'"{hashlib.md5(etag.encode(), usedforsecurity=False).hexdigest()}"')
    return c.send_reply(request, reply, c.reply_body(request, reply))


# Listings.


def element(page, name):
    found = re.search(b"<%b>(.*?)</%b>" % (name, name), page, re.DOTALL)
    return found[1] if found else None


def with_element(page, name, value):
    """A page with an element that has another value, or that is gone when it is None."""
    page = re.sub(b"<%b>.*?</%b>|<%b */>" % (name, name, name), b"", page, flags=re.DOTALL)
    return page if value is None else page.replace(b"</ListBucketResult>", b"<%b>%b</%b></ListBucketResult>" % (name, value, name))


def edit_page(c, request, reply, edit):
    """Passes a page of a listing on as `edit` has made it, which returns None to leave it alone."""
    page = b"".join(bytes(piece) for piece in first(c.reply_body(request, reply), DOCUMENT_BYTES_MAX))
    new = edit(page) if reply.status == 200 else None
    c.proxy.pages[request.page_of] = page
    if new is None:
        c.line["moot"] = True
    reply.set("Transfer-Encoding", None)
    reply.set("Content-Length", len(page if new is None else new))
    return c.send_reply(request, reply, [page if new is None else new])


def repeat_page(c, request, rule):
    last = c.proxy.pages.get(request.page_of)

    def edit(page):
        if not last or rule.get("token", "same") == "same":
            return last
        new = with_element(last, b"NextContinuationToken", element(page, b"NextContinuationToken"))
        return with_element(new, b"IsTruncated", element(page, b"IsTruncated"))
    return edit_page(c, request, c.send_request(request), edit)


def disorder(c, request, _rule):
    def edit(page):
        rows = CONTENTS.findall(page)
        rows_ = iter(sorted(rows, key=lambda row: (element(row, b"Key") or b"")[::-1]))
        new = CONTENTS.sub(lambda _: next(rows_), page)
        # Keys whose ends are in order, too, are turned round.
        rows_ = iter(rows[::-1])
        new = CONTENTS.sub(lambda _: next(rows_), page) if new == page else new
        return None if new == page else new
    return edit_page(c, request, c.send_request(request), edit)


def no_token(c, request, _rule):
    def edit(page):
        new = with_element(with_element(page, b"NextContinuationToken", None), b"NextMarker", None)
        return with_element(new, b"IsTruncated", b"true")
    return edit_page(c, request, c.send_request(request), edit)


def same_token(c, request, _rule):
    def edit(page):
        token = request.query.get("continuation-token")
        if token is None:
            return None
        return with_element(with_element(page, b"NextContinuationToken", token.encode()), b"IsTruncated", b"true")
    return edit_page(c, request, c.send_request(request), edit)
