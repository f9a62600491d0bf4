"""The least of an S3 client: signed requests of small bodies, by the standard library alone.

The server scripts use it to see that a server is ready, and to make the bucket. Tests use foreign clients.
"""

import datetime
import hashlib
import hmac
import http.client
import ssl
import urllib.parse

EMPTY = hashlib.sha256(b"").hexdigest()


def signature(secret, day, region, text):
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def signed_headers(settings, method, path, body, headers, now):
    """Signature version 4 of a request without a query."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    day, region = stamp[:8], settings["AWS_REGION"]
    host = urllib.parse.urlsplit(settings["CKPT_TEST_S3_ENDPOINT"]).netloc
    payload = hashlib.sha256(body).hexdigest() if body else EMPTY
    headers = {k.lower(): v for k, v in headers.items()} | {"host": host, "x-amz-content-sha256": payload, "x-amz-date": stamp}
    names = ";".join(sorted(headers))
    canonical = "\n".join([method, path, "", *(f"{k}:{headers[k]}" for k in sorted(headers)), "", names, payload])
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={settings['AWS_ACCESS_KEY_ID']}/{scope}, SignedHeaders={names}, "
        f"Signature={signature(settings['AWS_SECRET_ACCESS_KEY'], day, region, text)}"
    )
    return headers


def request(settings, method, path, body=b"", headers=None, timeout_s=10):
    """(status, body). The settings are those that a server script prints. Raises OSError when there is no reply."""
    path = urllib.parse.quote(path)
    now = datetime.datetime.now(datetime.timezone.utc)
    endpoint = urllib.parse.urlsplit(settings["CKPT_TEST_S3_ENDPOINT"])
    if endpoint.scheme == "https":
        trusted = ssl.create_default_context(cafile=settings["AWS_CA_BUNDLE"])
        connection = http.client.HTTPSConnection(endpoint.netloc, timeout=timeout_s, context=trusted)
    else:
        connection = http.client.HTTPConnection(endpoint.netloc, timeout=timeout_s)
    try:
        connection.request(method, path, body or None, signed_headers(settings, method, path, body, headers or {}, now))
        reply = connection.getresponse()
        return reply.status, reply.read()
    except http.client.HTTPException as e:
        raise OSError(f"no HTTP reply: {e!r}") from e
    finally:
        connection.close()
