"""The fault proxy does what a schedule says, and nothing else: seen by boto3 in front of it and beside it."""

import contextlib
import json
import os
import random
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from servers.schedule import FAULTS, Schedule, random_schedule
from support.object_servers import FaultProxy, foreign

MIB = 1 << 20
# The first test starts the server; Ceph takes its time.
pytestmark = pytest.mark.timeout(150)


def errors():
    """The exceptions of boto3 for a request that fails: a reply that is an error, or none."""
    return foreign("botocore.exceptions").BotoCoreError, foreign("botocore.exceptions").ClientError, OSError


class Bucket:
    """The test's part of the bucket, as one client sees it."""

    def __init__(self, server, client, prefix):
        self.client, self.bucket, self.prefix = client, server.bucket, prefix

    def put(self, key, data=b"x", **more):
        return self.client.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=data, **more)

    def get(self, key, **more):
        return self.client.get_object(Bucket=self.bucket, Key=self.prefix + key, **more)["Body"].read()

    def head(self, key):
        return self.client.head_object(Bucket=self.bucket, Key=self.prefix + key)

    def has(self, key):
        return self.page(key)["KeyCount"] > 0

    def page(self, key="", **more):
        return self.client.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix + key, **more)

    def keys(self, page):
        return [row["Key"].removeprefix(self.prefix) for row in page.get("Contents", [])]

    def begin_upload(self, key, data=b"x"):
        words = {"Bucket": self.bucket, "Key": self.prefix + key}
        words["UploadId"] = self.client.create_multipart_upload(**words)["UploadId"]
        part = self.client.upload_part(**words, PartNumber=1, Body=data)
        return words | {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}}


@pytest.fixture
def far(s3_server, client, s3_prefix):
    """The bucket through the proxy."""
    return Bucket(s3_server, client, s3_prefix)


@pytest.fixture
def near(s3_server, direct, s3_prefix):
    """The bucket itself."""
    return Bucket(s3_server, direct, s3_prefix)


def refusal(call, *arguments, **more):
    """(status, code) of an error that the client was given."""
    with pytest.raises(foreign("botocore.exceptions").ClientError) as e:
        call(*arguments, **more)
    return e.value.response["ResponseMetadata"]["HTTPStatusCode"], e.value.response["Error"]["Code"]


def last(proxy):
    return proxy.log()[-1]


# Nothing is disturbed that no rule names.


@pytest.mark.parametrize("size", [0, 1, 300_000, 20 * MIB])
def test_bodies_pass_unchanged_both_ways(far, near, fault_proxy, size):
    data = random.Random(size).randbytes(size)
    far.put("a", data)
    assert near.get("a") == data
    assert far.get("a") == data
    counts = fault_proxy.counts()
    assert (counts["bytes_in"], counts["bytes_out"]) == (size, size)
    assert counts["by_op"] == {"PutObject": 1, "GetObject": 1} and counts["by_fault"] == {}


@pytest.mark.parametrize("key", ["a b", "a+b", "é/ü", "a%20b", "a/b/c", "q?x=1&y", "~tilde'()*!"])
def test_signatures_of_odd_keys_hold(far, near, key):
    far.put(key, key.encode())
    assert near.get(key) == far.get(key) == key.encode()
    assert far.keys(far.page()) == [key]


def test_each_operation_passes_and_is_known(far, near, fault_proxy):
    upload = far.begin_upload("m", b"part")
    far.client.list_parts(**{k: upload[k] for k in ("Bucket", "Key", "UploadId")})
    far.client.complete_multipart_upload(**upload)
    other = far.begin_upload("n")
    far.client.list_multipart_uploads(Bucket=far.bucket)
    far.client.abort_multipart_upload(**{k: other[k] for k in ("Bucket", "Key", "UploadId")})
    far.client.copy_object(Bucket=far.bucket, Key=far.prefix + "c", CopySource={"Bucket": far.bucket, "Key": far.prefix + "m"})
    assert near.get("c") == far.get("m", Range="bytes=0-99") == b"part"
    far.head("m")
    assert far.keys(far.client.list_objects(Bucket=far.bucket, Prefix=far.prefix)) == ["c", "m"]
    far.client.delete_object(Bucket=far.bucket, Key=far.prefix + "c")
    far.client.delete_objects(Bucket=far.bucket, Delete={"Objects": [{"Key": far.prefix + "m"}]})
    assert not near.has("")
    far.client.head_bucket(Bucket=far.bucket)
    far.client.list_buckets()
    assert fault_proxy.counts()["by_op"] == {
        "CreateMultipartUpload": 2, "UploadPart": 2, "ListParts": 1, "CompleteMultipartUpload": 1, "ListMultipartUploads": 1,
        "AbortMultipartUpload": 1, "CopyObject": 1, "GetObject": 1, "HeadObject": 1, "ListObjects": 1, "DeleteObject": 1,
        "DeleteObjects": 1, "HeadBucket": 1, "ListBuckets": 1,
    }


def test_a_client_keeps_its_connection(far, fault_proxy):
    for n in range(50):
        far.put(f"k{n}")
    assert refusal(far.get, "missing") == (404, "NoSuchKey")
    far.page()
    assert fault_proxy.counts()["connections"] == 1


def test_a_large_body_is_not_kept_in_memory(far, near, fault_proxy):
    data = os.urandom(MIB) * 192
    far.put("large", data)
    assert far.get("large") == data
    status = Path(f"/proc/{fault_proxy.process.pid}/status").read_text()
    peak_kib = int(status.split("VmHWM:")[1].split()[0])
    assert peak_kib < 96 << 10


@pytest.mark.parametrize("version", ["s3", "s3v4"])
def test_presigned_urls_pass_and_their_signatures_are_not_logged(far, fault_proxy, s3_server, version):
    far.put("a", b"data")
    signer = s3_server.client(fault_proxy.endpoint, signature_version=version)
    url = signer.generate_presigned_url("get_object", Params={"Bucket": far.bucket, "Key": far.prefix + "a"})
    with urllib.request.urlopen(url) as reply:
        assert reply.read() == b"data"
    text = fault_proxy.log_text()
    assert "GetObject" in text
    for secret in ("Signature", s3_server.settings["AWS_SECRET_ACCESS_KEY"], s3_server.settings["AWS_ACCESS_KEY_ID"]):
        assert secret not in text


# Connections and replies.


def test_reset_before_reaches_no_server(far, near, fault_proxy):
    fault_proxy.play({"op": "PutObject", "do": "reset-before"})
    with pytest.raises(errors()):
        far.put("a")
    assert not near.has("a")
    line = last(fault_proxy)
    assert (line["did"], line["answer"], line["status"]) == ("reset-before", "reset", None)


@pytest.mark.parametrize("size", [1, 5 * MIB])
def test_reset_after_loses_the_reply_alone(far, near, fault_proxy, size):
    fault_proxy.play({"op": "PutObject", "do": "reset-after", "times": 1})
    data = os.urandom(size)
    with pytest.raises(errors()):
        far.put("a", data)
    assert near.get("a") == data
    line = last(fault_proxy)
    assert (line["did"], line["answer"], line["status"]) == ("reset-after", "reset", 200)


@pytest.mark.parametrize("kept", [0, 1, 100_000])
def test_cut_request_leaves_no_object(far, near, fault_proxy, kept):
    data = os.urandom(MIB)
    fault_proxy.play({"op": "PutObject", "do": "cut-request", "bytes": kept})
    # SeaweedFS 4.48 stores an empty object when a connection ends right behind the head, unless the head has a checksum.
    with pytest.raises(errors()):
        far.put("a", data, ContentMD5=foreign("botocore.utils").calculate_md5(data))
    assert not near.has("a")


@pytest.mark.parametrize("status, code", [(500, "InternalError"), (503, "SlowDown"), (429, "SlowDown"), (409, "ConditionalRequestConflict"),
                                          (412, "PreconditionFailed"), (507, "InsufficientStorage")])
@pytest.mark.parametrize("applied", [False, True])
def test_status_is_given_with_or_without_the_act(far, near, fault_proxy, status, code, applied):
    fault_proxy.play({"op": "PutObject", "nth": 1, "do": "status", "status": status, "applied": applied})
    assert refusal(far.put, "a", os.urandom(100_000)) == (status, code)
    assert near.has("a") == applied
    assert last(fault_proxy)["status"] == (200 if applied else None)
    far.put("b")
    assert near.has("b")


def test_status_takes_a_code_and_headers(far, fault_proxy):
    fault_proxy.play({"do": "status", "status": 503, "code": "Busy", "headers": {"Retry-After": "7"}})
    with pytest.raises(foreign("botocore.exceptions").ClientError) as e:
        far.get("a")
    assert e.value.response["Error"]["Code"] == "Busy"
    assert e.value.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "7"


def test_a_token_expires(far, near, fault_proxy):
    fault_proxy.play({"do": "expired-token"})
    assert refusal(far.put, "a") == (403, "ExpiredToken")
    assert refusal(far.page) == (403, "ExpiredToken")
    assert not near.has("a")


@pytest.mark.parametrize("applied", [False, True])
def test_200_has_an_error_in_it(far, near, fault_proxy, applied):
    upload = far.begin_upload("a", b"part")
    fault_proxy.play({"op": "CompleteMultipartUpload", "do": "ok-with-error", "applied": applied})
    with pytest.raises(foreign("botocore.exceptions").ClientError) as e:
        far.client.complete_multipart_upload(**upload)
    assert e.value.response["Error"]["Code"] == "InternalError"
    line = last(fault_proxy)
    assert (line["answer"], line["status"]) == (200, 200 if applied else None)
    assert near.has("a") == applied


# A write that arrives late.


def test_a_late_write_arrives_after_the_client_was_reset(far, near, fault_proxy):
    fault_proxy.play({"op": "PutObject", "nth": 1, "do": "late", "seconds": 1})
    with pytest.raises(errors()):
        far.put("a", b"old" * 100_000)
    assert not near.has("a")
    fault_proxy.settle()
    assert near.get("a") == b"old" * 100_000
    assert [(line["key"], line["status"]) for line in fault_proxy.log() if line.get("late")] == [(far.prefix + "a", 200)]


def test_a_late_write_overwrites_a_newer_one(far, near, fault_proxy):
    fault_proxy.play({"op": "PutObject", "nth": 1, "do": "late", "seconds": 0.5, "answer": 503})
    assert refusal(far.put, "a", b"old") == (503, "SlowDown")
    far.put("a", b"new")
    assert near.get("a") == b"new"
    fault_proxy.settle()
    assert near.get("a") == b"old"


def test_a_late_conditional_write_comes_too_late(far, near, fault_proxy):
    fault_proxy.play({"op": "PutObject", "nth": 1, "conditional": True, "do": "late", "seconds": 0.5})
    with pytest.raises(errors()):
        far.put("a", b"old", IfNoneMatch="*")
    far.put("a", b"new", IfNoneMatch="*")
    fault_proxy.settle()
    assert near.get("a") == b"new"
    assert last(fault_proxy)["status"] == 412


# Time.


@pytest.mark.parametrize("where", ["request", "reply", "body"])
def test_a_stall_takes_its_time(far, fault_proxy, where):
    data = os.urandom(MIB)
    far.put("a", data)
    fault_proxy.play({"op": "GetObject", "do": "stall", "where": where, "seconds": 1, "bytes": 1000})
    began = time.monotonic()
    assert far.get("a") == data
    assert time.monotonic() - began >= 1


def test_a_client_gives_a_stall_up(s3_server, far, fault_proxy, s3_prefix):
    far.put("a")
    fault_proxy.play({"op": "GetObject", "nth": 1, "do": "stall", "where": "reply", "seconds": 3})
    hasty = Bucket(s3_server, s3_server.client(fault_proxy.endpoint, timeout_s=0.5), s3_prefix)
    with pytest.raises(foreign("botocore.exceptions").ReadTimeoutError):
        hasty.get("a")
    assert hasty.get("a") == b"x"


def test_a_listing_is_slow(far, fault_proxy):
    far.put("a")
    fault_proxy.play({"op": "ListObjectsV2", "do": "stall", "seconds": 1})
    began = time.monotonic()
    assert far.keys(far.page()) == ["a"]
    assert time.monotonic() - began >= 1


def test_the_link_has_a_rate_in_each_direction(far, fault_proxy):
    fault_proxy.play(mb_per_s=4)
    data = os.urandom(6_000_000)
    began = time.monotonic()
    far.put("a", data)
    middle = time.monotonic()
    assert far.get("a") == data
    # The first piece waits for nothing on its way in; no more than one piece may be ahead of the rate.
    assert middle - began >= 1.4
    assert time.monotonic() - middle >= 1.4


def test_one_reply_is_slow(far, fault_proxy):
    far.put("a", b"x" * 500_000)
    fault_proxy.play({"op": "GetObject", "nth": 2, "do": "slow", "mb_per_s": 0.5})
    began = time.monotonic()
    far.get("a")
    middle = time.monotonic()
    far.get("a")
    assert time.monotonic() - middle >= 0.9 > middle - began


# Bodies and headers.


@pytest.mark.parametrize("reset", [False, True])
def test_a_body_is_truncated(far, fault_proxy, reset):
    far.put("a", os.urandom(MIB))
    fault_proxy.play({"op": "GetObject", "nth": 1, "do": "truncate", "bytes": 1000, "reset": reset})
    with pytest.raises(errors()):
        far.get("a")
    line = last(fault_proxy)
    assert (line["answer"], line["bytes_out"]) == ("reset" if reset else "cut", 1000)
    assert len(far.get("a")) == MIB


def test_a_length_is_too_great(far, fault_proxy):
    far.put("a", b"x" * 1000)
    fault_proxy.play({"op": "GetObject", "do": "wrong-length", "by": 24})
    reply = far.client.get_object(Bucket=far.bucket, Key=far.prefix + "a")
    assert reply["ContentLength"] == 1024
    with pytest.raises(errors()):
        reply["Body"].read()


def test_a_length_is_too_small(far, fault_proxy):
    far.put("a", b"x" * 1000)
    fault_proxy.play({"op": "GetObject", "do": "wrong-length", "by": -24})
    assert far.get("a") == b"x" * 976


def test_a_checksum_is_wrong(s3_server, near, fault_proxy, s3_prefix):
    careful = s3_server.client(fault_proxy.endpoint, response_checksum_validation="when_supported")
    far = Bucket(s3_server, careful, s3_prefix)
    near.put("a", b"data")
    assert far.get("a", ChecksumMode="ENABLED") == b"data"
    fault_proxy.play({"op": "GetObject", "do": "bad-checksum"})
    with pytest.raises(foreign("botocore.exceptions").FlexibleChecksumError):
        far.get("a", ChecksumMode="ENABLED")


def test_an_etag_is_that_of_other_bytes(far, near, fault_proxy):
    right = near.put("a")["ETag"]
    fault_proxy.play({"do": "bad-etag"})
    wrong = far.head("a")["ETag"]
    assert wrong != right and len(wrong) == len(right)


@pytest.mark.parametrize("at, bit", [(0, 7), (700_000, 0), (MIB - 1, 3)])
def test_one_bit_of_a_reply_is_flipped(far, fault_proxy, at, bit):
    data = os.urandom(MIB)
    far.put("a", data)
    fault_proxy.play({"op": "GetObject", "nth": 1, "do": "flip", "at": at, "bit": bit})
    assert far.get("a") == data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1:]
    assert far.get("a") == data


def test_one_bit_of_a_request_is_flipped_and_the_server_sees_it(far, near, fault_proxy):
    md5 = foreign("botocore.utils").calculate_md5
    data = os.urandom(MIB)
    fault_proxy.play({"op": "PutObject", "do": "flip", "where": "request", "nth": 1})
    with pytest.raises(foreign("botocore.exceptions").ClientError):
        far.put("a", data, ContentMD5=md5(data))
    assert not near.has("a")
    far.put("a", data, ContentMD5=md5(data))
    assert near.get("a") == data


def test_a_fault_without_anything_to_act_on_is_moot(far, fault_proxy):
    far.put("a", b"")
    fault_proxy.play({"op": "GetObject", "do": "flip"})
    assert far.get("a") == b""
    assert last(fault_proxy)["moot"] is True
    assert fault_proxy.counts()["by_fault"] == {}


# Listings.


@pytest.fixture
def five(near):
    for name in "abcde":
        near.put(name)


def second_page(bucket, **more):
    first = bucket.page(MaxKeys=2)
    assert bucket.keys(first) == ["a", "b"]
    return first, bucket.page(MaxKeys=2, ContinuationToken=first["NextContinuationToken"], **more)


def test_a_page_comes_again(five, far, fault_proxy):
    fault_proxy.play({"op": "ListObjectsV2", "nth": 1, "do": "repeat-page"})
    first, second = second_page(far)
    assert far.keys(second) == ["a", "b"]
    assert second["NextContinuationToken"] == first["NextContinuationToken"]
    assert far.keys(far.page(MaxKeys=2, ContinuationToken=second["NextContinuationToken"])) == ["c", "d"]


def test_a_page_comes_again_with_the_next_token(five, far, fault_proxy):
    fault_proxy.play({"op": "ListObjectsV2", "nth": 1, "do": "repeat-page", "token": "next"})
    _, second = second_page(far)
    assert far.keys(second) == ["a", "b"]
    assert far.keys(far.page(MaxKeys=2, ContinuationToken=second["NextContinuationToken"])) == ["e"]


def test_a_page_is_in_disorder(five, far, fault_proxy):
    fault_proxy.play({"op": "ListObjectsV2", "do": "disorder"})
    keys = far.keys(far.page())
    assert keys != list("abcde") and sorted(keys) == list("abcde")


def test_a_page_has_no_token(five, far, fault_proxy):
    fault_proxy.play({"op": "ListObjectsV2", "do": "no-token"})
    page = far.page(MaxKeys=2)
    assert page["IsTruncated"] is True and "NextContinuationToken" not in page
    assert far.page()["IsTruncated"] is True


def test_a_page_leads_to_itself(five, far, fault_proxy):
    fault_proxy.play({"op": "ListObjectsV2", "do": "same-token", "nth": 2})
    first, second = second_page(far)
    assert second["IsTruncated"] is True and second["NextContinuationToken"] == first["NextContinuationToken"]


# Schedules.


def test_rules_choose_by_key_number_and_condition(far, near, fault_proxy):
    fault_proxy.play({"op": "PutObject", "key": far.prefix + "log/*", "nth": [1, 3], "do": "status", "status": 503},
                     {"op": "PutObject", "conditional": True, "do": "status", "status": 409})
    far.put("data")
    assert refusal(far.put, "log/1")[0] == 503
    far.put("log/2")
    assert refusal(far.put, "log/3")[0] == 503
    assert refusal(far.put, "other", IfNoneMatch="*")[0] == 409
    assert near.keys(near.page()) == ["data", "log/2"]
    assert [line["rule"] for line in fault_proxy.log()] == [None, 0, None, 0, 1]


def test_every_and_times(far, fault_proxy):
    fault_proxy.play({"op": "HeadObject", "every": 3, "times": 2, "do": "reset-before"})
    far.put("a")
    answers = []
    for _ in range(12):
        try:
            far.head("a")
            answers.append("+")
        except errors():
            answers.append("-")
    assert "".join(answers) == "++-++-++++++"


class Asked:
    op, method, key, is_conditional, is_continued = "PutObject", "PUT", "k", False, False


def picks(seed):
    schedule = Schedule({"seed": seed, "rules": [{"chance": 0.1, "do": "status", "status": 503}]})
    return [schedule.choose(Asked) is not None for _ in range(2000)]


def test_chance_is_the_same_for_the_same_seed():
    assert picks(1) == picks(1) != picks(2)
    assert 140 < sum(picks(1)) < 260


@pytest.mark.parametrize("words", [{"rules": [{"do": "nonsense"}]}, {"rules": [{"op": "PutObject"}]}, {"rule": []},
                                   {"rules": [{"do": "status", "seconds": 1}]}])
def test_a_wrong_schedule_is_refused(fault_proxy, words):
    with pytest.raises(ValueError):
        fault_proxy.call({"do": "play", "schedule": words})


def test_commands_come_by_http_too(far, fault_proxy):
    def post(command):
        request = urllib.request.Request(f"{fault_proxy.endpoint}/-/fault-proxy", json.dumps(command).encode(), method="POST")
        with urllib.request.urlopen(request) as reply:
            return json.loads(reply.read())

    post({"do": "play", "schedule": {"rules": [{"op": "PutObject", "nth": 1, "do": "status", "status": 503}]}})
    assert refusal(far.put, "a")[0] == 503
    far.put("a")
    assert post({"do": "counts"})["by_op"] == {"PutObject": 2}
    for wrong in ({"do": "nothing"}, [], {"do": "play"}, {"do": "play", "schedule": {"rules": [{"do": "?"}]}}):
        with pytest.raises(urllib.error.HTTPError) as e:
            post(wrong)
        assert e.value.code == 400


def test_counts_begin_again(far, fault_proxy):
    far.put("a")
    fault_proxy.forget()
    far.get("a")
    assert fault_proxy.counts()["by_op"] == {"GetObject": 1}


def test_random_schedules_follow_their_seed():
    made = [random_schedule(seed) for seed in range(300)]
    assert made == [random_schedule(seed) for seed in range(300)]
    assert len({json.dumps(s["rules"]) for s in made}) == 300
    for schedule in made:
        Schedule(schedule)
    assert {rule["do"] for s in made for rule in s["rules"]} == set(FAULTS)


def insist(is_right, call, *arguments, **more):
    """Tries again, as a client should, until there is a right answer; the rules of a random schedule end."""
    for _ in range(40):
        with contextlib.suppress(*errors()):
            answer = call(*arguments, **more)
            if is_right(answer):
                return
    pytest.fail(f"{call} {arguments[:1]} does not get through")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(6))
def test_a_client_that_insists_gets_through_a_random_schedule(s3_server, near, s3_prefix, tmp_path, seed):
    md5 = foreign("botocore.utils").calculate_md5
    data = {f"{n:02d}": random.Random(n).randbytes(50_000) for n in range(12)}
    schedule = random_schedule(seed, 16, ops=["PutObject", "GetObject", "ListObjectsV2"])
    with FaultProxy(s3_server.endpoint, schedule, tmp_path / "log") as proxy:
        far = Bucket(s3_server, s3_server.client(proxy.endpoint, timeout_s=5), s3_prefix)
        for key, body in data.items():
            insist(lambda _: True, far.put, key, body, ContentMD5=md5(body))
        for key, body in data.items():
            insist(lambda got, body=body: got == body, far.get, key)
        for _ in range(12):
            insist(lambda page: far.keys(page) == sorted(data) and not page["IsTruncated"], far.page)
        counts = proxy.settle()
    assert sum(counts["by_fault"].values()) >= 5, schedule
    assert {key: near.get(key) for key in data} == data
