"""Garbage in a bucket: what goes, what stays, and what a collection says."""

import os
import random
import shutil

import pytest

from support import trees
from support.mounting import wait_until
from support.nodes import *  # noqa: F403
from support.nodes import SEEN

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def gc(ckptfs, url, scratch, s3_server):
    """Collects garbage in the bucket, by the mount of this node, or, of another name, as a cron job does it."""
    def collect(name, *args):
        env = os.environ | {"CKPTFS_WORK_DIR": str(scratch / f"work-{name}"), "AWS_ENDPOINT_URL_S3": s3_server.endpoint}
        return ckptfs.json("gc", url, "--grace", "0s", *args, env=env)
    return collect


def test_garbage_leaves_the_bucket_and_what_is_listed_stays(node, gc, ckptfs, keys, client, s3_server, s3_prefix):
    first, second = node("a"), node("b")
    is_there = {name: first.save(name) for name in ("1000", "2000", "3000")}
    first.wait()
    before = keys("packs/")
    upload = {"Bucket": s3_server.bucket, "Key": s3_prefix + "packs/" + "ab" * 32}
    upload["UploadId"] = client.create_multipart_upload(Bucket=upload["Bucket"], Key=upload["Key"])["UploadId"]
    ckptfs("rm", first.path, "1000")
    shutil.rmtree(first / "2000")
    trees.fill(first / "2000", seed="another")
    is_there = {"2000": first.complete("2000"), "3000": is_there["3000"]}
    first.wait()
    assert gc("cron")["condemned"]["objects"] == 0, "the trash needs them"
    ckptfs("trash", "empty", "--yes", first.path)
    wait_until(lambda: gc("cron", "--dry-run")["condemned"]["objects"] > 0, SEEN, "the end of what was in the trash")
    marked = gc("a")  # the mount does it
    assert marked["condemned"]["objects"] > 0 and marked["deleted"]["objects"] == 0
    assert marked["waiting"] == marked["condemned"] and 3000 < marked["waiting_seconds"] <= 3660
    assert set(before) <= set(keys("packs/"))
    first.wait()  # it has moved what is needed of the pack that the first steps had together
    removed = gc("cron", "--delay", "0s")
    assert removed["condemned"]["objects"] == marked["repacked"]["objects"] and removed["waiting"]["objects"] == 0
    assert removed["deleted"]["bytes"] == marked["condemned"]["bytes"] + removed["condemned"]["bytes"]
    assert not set(before) <= set(keys("packs/"))
    assert len(keys("packs/")) + len(keys("m/")) == removed["live"]["objects"]
    assert removed["uploads"] == 0, "it was begun just now"
    left = client.list_multipart_uploads(Bucket=s3_server.bucket, Prefix=s3_prefix)["Uploads"]
    assert [u["Key"] for u in left] == [upload["Key"]]
    client.abort_multipart_upload(**upload)
    third = node("c")
    wait_until(lambda: second.listing() == ["2000", "3000"], SEEN, "the deletion")
    for n in (first, second, third):
        assert {name: trees.describe(n / name) for name in n.listing()} == is_there


def test_each_object_that_cannot_be_removed_is_named(ckptfs, url, keys, client, s3_server, s3_prefix, fault_proxy, scratch, monkeypatch):
    """As where the bucket holds some of them: the others go."""
    monkeypatch.setenv("CKPTFS_WORK_DIR", str(scratch / "work"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", fault_proxy.endpoint)
    ckptfs("init", url)
    for i in range(40):
        client.put_object(Bucket=s3_server.bucket, Key=f"{s3_prefix}packs/{i:02}" + "ab" * 31, Body=b"nobody needs it")
    held = [f"packs/{i}" + "ab" * 31 for i in (11, 22, 33)]
    fault_proxy.play(*({"op": "DeleteObject", "key": f"*{key}", "do": "status", "status": 403, "code": "AccessDenied"} for key in held))
    refused = ckptfs("gc", url, "--grace", "0s", "--delay", "0s", "--force", check=False)
    assert refused.returncode == 1
    assert "3 of 40 objects cannot be removed" in refused.stderr and all(key in refused.stderr for key in held)
    assert keys("packs/") == held
    fault_proxy.play()
    assert ckptfs.json("gc", url, "--grace", "0s", "--delay", "0s")["deleted"]["objects"] == 3
    assert not keys("packs/")


def test_a_half_dead_pack_is_moved_by_a_machine_that_has_nothing_of_it(node, gc, ckptfs, keys):
    first, dice = node("a"), random.Random(7)  # bytes that do not get smaller
    shared, is_there = dice.randbytes(2_000_000), {}
    for name, own in (("1000", 5_000_000), ("2000", 1000)):
        (first / name).mkdir()
        trees.write(first / name / "shared.bin", shared)
        trees.write(first / name / "own.bin", dice.randbytes(own))
        if own > 1000:
            wait_until(lambda: keys("packs/"), SEEN, "one pack of both files: the commit would end it")
        is_there[name] = first.complete(name)
        first.wait()
    before = keys("packs/")
    ckptfs("rm", "--now", "--yes", first.path, "1000")
    first.wait()
    first.lose()
    said = gc("cron", "--dry-run")
    assert said["half_dead"]["objects"] == said["repacked"]["objects"] == 1 and said["half_dead"]["bytes"] > 2_000_000
    assert keys("packs/") == before
    moved = gc("cron")
    assert moved["half_dead"] == said["half_dead"] and moved["repacked"] == said["repacked"]
    assert len(keys("packs/")) == len(before) + 1, "it was uploaded when the verb had ended"
    assert gc("cron", "--delay", "0s")["deleted"]["objects"] == 1
    assert len(set(before) - set(keys("packs/"))) == 1
    second = node("b")
    assert {name: trees.describe(second / name) for name in second.listing()} == {"2000": is_there["2000"]}
    assert gc("cron", "--dry-run")["half_dead"]["objects"] == 0
