"""doctor of a store in a bucket: what it says of servers, keys and buckets that are as they should be, and of others; and that it leaves nothing."""

import email.utils
import json
import os
import time
import uuid

import pytest

from support.nodes import *  # noqa: F403
from support.object_servers import running_server
from support.schema import mismatch

pytestmark = pytest.mark.timeout(180)  # the race for a key alone takes SeaweedFS a minute on a busy machine

WRITES = ["PutObject", "DeleteObject", "CreateMultipartUpload", "AbortMultipartUpload"]
RULE = {"ID": "old things", "Status": "Enabled", "Expiration": {"Days": 30}}


@pytest.fixture(autouse=True)
def nothing_known(environment, monkeypatch, scratch):
    """No work directory is made, and no source of keys is asked that could take long."""
    monkeypatch.setenv("CKPTFS_WORK_DIR", str(scratch / "not-made"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield
    assert not (scratch / "not-made").exists()


@pytest.fixture
def doctor(ckptfs, s3_server):
    """Its checks by name, after a look at what must hold of every answer."""
    def look(url, status=0, endpoint=None, options=()):
        options = options or [f"endpoint={endpoint or s3_server.endpoint}"]
        done = ckptfs("doctor", url, "--json", *(w for o in options for w in ("-o", o)), check=False, timeout=150)
        answer = json.loads(done.stdout)
        assert mismatch(answer, "doctor") is None, done.stdout
        assert s3_server.settings["AWS_SECRET_ACCESS_KEY"] not in done.stdout + done.stderr
        checks = {c["name"]: c for c in answer["checks"]}
        assert len(checks) == len(answer["checks"]), "a name for each"
        assert done.returncode == status, done.stdout
        assert status == any(not c["ok"] and c["required"] for c in checks.values())
        return checks
    return look


@pytest.fixture
def bucket(s3_server, client):
    """A bucket of its own, for settings."""
    name = f"doctor-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=name)
    return name


def failures(checks):
    return [name for name, c in checks.items() if c["required"] and not c["ok"]]


def everything(client, bucket):
    rows = client.list_objects_v2(Bucket=bucket).get("Contents", [])
    return sorted((row["Key"], row["ETag"]) for row in rows), client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])


def test_a_store_on_a_good_server_is_well_and_nothing_is_left(node, doctor, url, client, s3_server, ckptfs):
    first = node("a")
    for name in ("1000", "2000"):
        first.save(name)
        first.wait(name)
    ckptfs("rm", first.path, "1000")
    first.wait()
    first.umount()
    before = everything(client, s3_server.bucket)
    checks = doctor(url)
    assert everything(client, s3_server.bucket) == before
    said = {name: c["detail"] for name, c in checks.items()}
    entries = sum("/log/" in key for key, _ in before[0])
    assert s3_server.endpoint in said["server"] and "us-east-1" in said["server"]
    assert said["credentials"] == "from the environment, without an end"
    assert said["remote_store"].startswith(f"format 1, 1 steps, {entries} entries in the log; no snapshot"), said
    assert {"list", "get", "put", "delete", "abort_upload", "put_if_absent", "checksums", "server_clock", "versioning", "object_lock", "uploads"} <= {
        name for name, c in checks.items() if c["ok"]}, checks
    assert "no work directory" in said["index"]
    assert not checks["lifecycle"]["ok"] and "--policy" in checks["lifecycle"]["hint"]  # SeaweedFS has none at first


def test_the_work_directory_of_this_node_is_looked_at_with_its_options(node, doctor, url, fault_proxy):
    first = node("a", fault_proxy.endpoint)
    first.save("1000")
    first.wait("1000")
    first.umount()
    fault_proxy.play({"op": WRITES, "do": "status", "status": 403})  # which spares the race
    checks = doctor(url, options=[f"work_dir={first.work_dir}"])
    assert fault_proxy.endpoint in checks["server"]["detail"], "that of the last mount"
    assert str(first.work_dir) in checks["store"]["detail"] and checks["log"]["ok"]
    assert "1 steps" in checks["remote_store"]["detail"]


def test_a_work_directory_that_is_damaged_is_no_missing_one(doctor, url, scratch, fault_proxy):
    options = [f"work_dir={scratch / 'damaged'}", f"endpoint={fault_proxy.endpoint}"]
    fault_proxy.play({"op": WRITES, "do": "status", "status": 403})
    (scratch / "damaged").mkdir()
    assert "no work directory" in doctor(url, options=options)["index"]["detail"]
    (scratch / "damaged/store.json").write_text("{")
    checks = doctor(url, status=1, options=options)
    assert failures(checks) == ["store"] and "store.json" in checks["store"]["detail"] and checks["store"]["hint"]
    assert "no work directory" not in checks["index"]["detail"] and checks["list"]["ok"], "the bucket is looked at all the same"


def test_a_server_that_ignores_conditions_fails(doctor, monkeypatch):
    with running_server("rclone-s3") as server:
        for name, value in server.settings.items():
            monkeypatch.setenv(name, value)
        checks = doctor(f"s3://{server.bucket}/run", status=1, endpoint=server.endpoint)
        assert "put_if_absent" in failures(checks)
        assert "taken" in checks["put_if_absent"]["detail"] and "another server" in checks["put_if_absent"]["hint"]
        assert "checksums" in failures(checks)


@pytest.mark.parametrize("what, check, words", [
    ("a wrong secret", "credentials", "SignatureDoesNotMatch"),
    ("an unknown key", "credentials", "InvalidAccessKeyId"),
    ("no keys", "credentials", "no keys"),
    ("no bucket", "bucket", "there is no bucket nosuchbucket"),
    ("no server", "server", "onnect"),
])
def test_what_cannot_work_is_one_line(doctor, url, monkeypatch, what, check, words):
    endpoint = None
    if what == "a wrong secret":
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    elif what == "an unknown key":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknown")
    elif what == "no keys":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    elif what == "no bucket":
        url = "s3://nosuchbucket/run"
    else:
        endpoint = "http://127.0.0.1:9"
    checks = doctor(url, status=1, endpoint=endpoint)
    assert failures(checks) == [check]
    assert words in checks[check]["detail"] and checks[check]["hint"]
    assert "put" not in checks and "remote_store" not in checks


def test_a_reader_sees_which_rights_it_lacks(node, doctor, url, client, s3_server, fault_proxy):
    first = node("a")
    first.save("1000")
    first.wait("1000")
    first.umount()
    before = everything(client, s3_server.bucket)
    fault_proxy.play({"op": WRITES, "do": "status", "status": 403})
    checks = doctor(url, endpoint=fault_proxy.endpoint)
    assert "s3:DeleteObject" in checks["delete"]["hint"] and not checks["put"]["ok"] and not checks["put_if_absent"]["ok"]
    assert checks["list"]["ok"] and checks["get"]["ok"] and "1 steps" in checks["remote_store"]["detail"]
    fault_proxy.play({"op": "PutObject", "do": "status", "status": 403})
    checks = doctor(url, endpoint=fault_proxy.endpoint)
    assert checks["delete"]["ok"] and "-o ro" in checks["put"]["detail"] and "s3:PutObject" in checks["put"]["hint"]
    assert everything(client, s3_server.bucket) == before


def test_a_clock_that_is_off_is_told_in_seconds(doctor, url, fault_proxy):
    begun = time.time()
    then = email.utils.formatdate(begun + 3600, usegmt=True)
    fault_proxy.play({"op": "ListObjectsV2", "do": "status", "status": 403, "headers": {"Date": then}})
    clock = doctor(url, status=1, endpoint=fault_proxy.endpoint)["server_clock"]
    assert not clock["ok"] and not clock["required"]
    [seconds] = [int(word) for word in clock["detail"].split() if word.isdigit()]
    assert 3598 - (time.time() - begun) <= seconds <= 3602 and "ahead" in clock["detail"]


def test_settings_of_the_bucket_that_cost_or_destroy_are_told(doctor, client, bucket, fault_proxy):
    fault_proxy.play({"op": WRITES, "do": "status", "status": 403})
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [RULE | {"Filter": {"Prefix": "other/"}}]})
    checks = doctor(f"s3://{bucket}/run", endpoint=fault_proxy.endpoint)
    assert "paid for" in checks["versioning"]["detail"] and not checks["versioning"]["ok"]
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [RULE | {"Filter": {"Prefix": "run/"}}]})
    checks = doctor(f"s3://{bucket}/run", status=1, endpoint=fault_proxy.endpoint)
    assert failures(checks) == ["lifecycle"] and "old things" in checks["lifecycle"]["detail"]


def test_an_upload_that_was_left_is_counted(doctor, client, url, s3_server, s3_prefix, fault_proxy):
    client.create_multipart_upload(Bucket=s3_server.bucket, Key=s3_prefix + "packs/left")
    fault_proxy.play({"op": WRITES, "do": "status", "status": 403})
    assert doctor(url, endpoint=fault_proxy.endpoint)["uploads"]["detail"].startswith("1 unfinished")


def test_a_log_that_cannot_be_read_to_its_end_fails_and_names_the_entry(node, doctor, url, client, s3_server, s3_prefix, fault_proxy):
    first = node("a")
    first.save("1000")
    first.wait("1000")
    first.umount()
    fault_proxy.play({"op": WRITES, "do": "status", "status": 403})
    entry = "log/0000000000000001"
    client.put_object(Bucket=s3_server.bucket, Key=s3_prefix + entry, Body=b"damaged")
    checks = doctor(url, status=1, endpoint=fault_proxy.endpoint)
    assert failures(checks) == ["remote_store"] and entry in checks["remote_store"]["detail"]
    assert "a copy of the bucket" in checks["remote_store"]["hint"]
    fault_proxy.play({"op": "GetObject", "key": f"*{entry}", "do": "status", "status": 403, "code": "AccessDenied"},
                     {"op": WRITES, "do": "status", "status": 403})
    checks = doctor(url, status=1, endpoint=fault_proxy.endpoint)
    assert failures(checks) == ["remote_store"] and entry in checks["remote_store"]["detail"]
    assert "403 AccessDenied" in checks["remote_store"]["detail"] and not checks["remote_store"]["hint"], "it is not damaged"
    fault_proxy.play({"op": WRITES, "do": "status", "status": 403})
    client.put_object(Bucket=s3_server.bucket, Key=s3_prefix + "store.json", Body=b"{}")
    assert failures(doctor(url, status=1, endpoint=fault_proxy.endpoint)) == ["remote_store"]


def test_the_policy_is_of_this_bucket_and_prefix_and_nobody_is_asked(ckptfs, store):
    ckptfs("init", store)
    no_keys = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    answer = json.loads(ckptfs("doctor", "--policy", "s3://my-bucket/a/run42/", env=no_keys | {"AWS_REGION": "eu-west-1"}).stdout)
    bucket, objects = "arn:aws:s3:::my-bucket", "arn:aws:s3:::my-bucket/a/run42/*"
    assert [s["Resource"] for who in ("reader", "writer") for s in answer[who]["Statement"]] == [bucket, objects] * 2
    assert answer["reader"]["Statement"][1]["Action"] == ["s3:GetObject"]
    assert {"s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"} < set(answer["writer"]["Statement"][1]["Action"])
    uploads, versions = answer["lifecycle"]["Rules"]
    assert {r["Filter"]["Prefix"] for r in (uploads, versions)} == {"a/run42/"}
    assert uploads["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] > 1 and "Expiration" not in uploads
    assert versions["Expiration"] == {"ExpiredObjectDeleteMarker": True}
    answer = json.loads(ckptfs("doctor", "--policy", "s3://my-bucket/a*b", "-o", "region=cn-north-1", env=no_keys).stdout)
    assert answer["reader"]["Statement"][1]["Resource"] == "arn:aws-cn:s3:::my-bucket/a${*}b/*"
    assert ckptfs("doctor", "--policy", "s3:///x", check=False).returncode == 1
    for words in (["--policy", store], ["--policy"], ["-o", "region=x", store]):
        assert ckptfs("doctor", *words, check=False).returncode == 2
