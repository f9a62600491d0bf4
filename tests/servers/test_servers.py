"""The object servers themselves: what tests rely on, what the negative one does not do, and that nothing is left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from support.fixtures import SLOW, SOURCE
from support.object_servers import SERVERS, VENV, FaultProxy, foreign, is_installed, new_prefix, running_server

RACERS, ROUNDS = 8, 12


@pytest.fixture(scope="module", params=["seaweedfs", "ceph-rgw"])
def honest(request):
    """A server that keeps its word on conditions; Ceph RGW where it is installed."""
    if not is_installed(request.param):
        pytest.skip(f"{request.param} is not installed here: tests/servers/{request.param} install, as root")
    with running_server(request.param) as server:
        yield server


@pytest.fixture(scope="module")
def careless():
    with running_server("rclone-s3") as server:
        yield server


def race_for_keys(server, endpoint, rounds=ROUNDS):
    """The prefix of the keys, and for each of them, by number, which of the racers were told that they created it."""
    client = server.client(endpoint)
    prefix = new_prefix()
    barrier = threading.Barrier(RACERS)
    won = [[] for _ in range(rounds)]

    def race(me):
        for n in range(rounds):
            barrier.wait(60)
            with contextlib.suppress(foreign("botocore.exceptions").ClientError):
                client.put_object(Bucket=server.bucket, Key=f"{prefix}{n}", Body=bytes([me]) * 1000, IfNoneMatch="*")
                won[n].append(me)

    threads = [threading.Thread(target=race, args=(me,)) for me in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return prefix, [sorted(who) for who in won]


def winners(server, endpoint, rounds=ROUNDS):
    """For each round: which of the racers were told that they created the key, and whose bytes it has."""
    prefix, won = race_for_keys(server, endpoint, rounds)
    client = server.client(endpoint)
    return [(who, client.get_object(Bucket=server.bucket, Key=f"{prefix}{n}")["Body"].read()[0]) for n, who in enumerate(won)]


@pytest.mark.timeout(120)
def test_of_those_who_create_a_key_one_wins(honest):
    for who, has in winners(honest, honest.endpoint):
        assert who == [has]


@pytest.mark.timeout(120)
def test_of_those_who_create_a_key_through_the_proxy_one_wins(honest):
    with FaultProxy(honest.endpoint) as proxy:
        for who, has in winners(honest, proxy.endpoint, 4):
            assert who == [has]
        assert proxy.counts()["by_op"] == {"PutObject": RACERS * 4, "GetObject": 4}


def test_rclone_lets_all_who_create_a_key_win(careless):
    _, won = race_for_keys(careless, careless.endpoint, 4)  # of a key that all put at once rclone may keep nothing at all
    assert max(len(who) for who in won) > 1


def test_a_condition_that_fails_is_412(honest, s3_prefix):
    client = honest.client()
    client.put_object(Bucket=honest.bucket, Key=s3_prefix + "a", Body=b"first", IfNoneMatch="*")
    with pytest.raises(foreign("botocore.exceptions").ClientError) as e:
        client.put_object(Bucket=honest.bucket, Key=s3_prefix + "a", Body=b"second", IfNoneMatch="*")
    assert e.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    assert client.get_object(Bucket=honest.bucket, Key=s3_prefix + "a")["Body"].read() == b"first"


def test_a_wrong_key_is_refused(honest, careless):
    for server in (honest, careless):
        settings = server.settings | {"AWS_SECRET_ACCESS_KEY": "0" * 40}
        client = foreign("boto3").session.Session().client(
            "s3", endpoint_url=server.endpoint, region_name=settings["AWS_REGION"], aws_access_key_id=settings["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=settings["AWS_SECRET_ACCESS_KEY"])
        with pytest.raises(foreign("botocore.exceptions").ClientError) as e:
            client.put_object(Bucket=server.bucket, Key="wrong", Body=b"")
        assert e.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


@pytest.mark.timeout(180)
def test_what_was_acknowledged_survives_a_kill_and_a_restart(honest, s3_prefix):
    client = honest.client()
    acknowledged, stop = [], threading.Event()

    def write():
        n = 0
        while not stop.is_set():
            try:
                client.put_object(Bucket=honest.bucket, Key=f"{s3_prefix}{n:05d}", Body=f"{n}".encode() * 100)
                acknowledged.append(n)
            except (OSError, *client_errors()):
                time.sleep(0.05)
            n += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        time.sleep(1)
        honest.kill()
        killed_after = len(acknowledged)
        honest.restart()
        deadline = time.monotonic() + 60
        while len(acknowledged) < killed_after + 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        honest.restart()
    finally:
        stop.set()
        writer.join()
    assert 0 < killed_after < len(acknowledged)
    for n in acknowledged:
        assert client.get_object(Bucket=honest.bucket, Key=f"{s3_prefix}{n:05d}")["Body"].read() == f"{n}".encode() * 100


def client_errors():
    return foreign("botocore.exceptions").BotoCoreError, foreign("botocore.exceptions").ClientError


@pytest.mark.timeout(120)
def test_a_proxy_outlives_its_server(s3_prefix):
    with running_server("seaweedfs") as server, FaultProxy(server.endpoint) as proxy:
        client = server.client(proxy.endpoint)
        client.put_object(Bucket=server.bucket, Key=s3_prefix + "a", Body=b"x")
        server.kill()
        with pytest.raises((OSError, *client_errors())):
            client.get_object(Bucket=server.bucket, Key=s3_prefix + "a")
        server.restart()
        assert client.get_object(Bucket=server.bucket, Key=s3_prefix + "a")["Body"].read() == b"x"


@pytest.mark.timeout(120)
def test_tls_is_for_its_address_and_those_who_trust_it(s3_prefix):
    with running_server("seaweedfs", tls=True) as server:
        assert server.endpoint.startswith("https://127.0.0.1:")
        server.client().put_object(Bucket=server.bucket, Key=s3_prefix + "a", Body=b"x")
        wrong_name = server.client(server.endpoint.replace("127.0.0.1", "localhost"))
        server.settings.pop("AWS_CA_BUNDLE")
        for client in (server.client(), wrong_name):
            with pytest.raises(foreign("botocore.exceptions").SSLError):
                client.get_object(Bucket=server.bucket, Key=s3_prefix + "a")


# Foreign clients through the proxy: their signatures hold.


def tool(name, *arguments, server, endpoint, **environment):
    settings = {k: v for k, v in server.settings.items() if k.startswith("AWS_")}
    done = subprocess.run([VENV / "bin" / name, *arguments], env=os.environ | settings | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_s5cmd_works_through_the_proxy(s3_server, fault_proxy, s3_prefix, tmp_path):
    data = os.urandom(12 << 20)
    (tmp_path / "data").write_bytes(data)
    words = {"server": s3_server, "endpoint": fault_proxy.endpoint, "AWS_CONFIG_FILE": "/dev/null"}
    url = f"s3://{s3_server.bucket}/{s3_prefix}data"
    tool("s5cmd", "--endpoint-url", fault_proxy.endpoint, "cp", "--part-size", "5", tmp_path / "data", url, **words)
    tool("s5cmd", "--endpoint-url", fault_proxy.endpoint, "cp", url, tmp_path / "back", **words)
    assert (tmp_path / "back").read_bytes() == data
    assert s3_server.client().get_object(Bucket=s3_server.bucket, Key=s3_prefix + "data")["Body"].read() == data
    assert fault_proxy.counts()["by_op"]["UploadPart"] == 3


def test_rclone_works_through_the_proxy(s3_server, fault_proxy, s3_prefix, tmp_path):
    for n in range(5):
        (tmp_path / f"f{n}").write_bytes(os.urandom(1000 * n))
    remote = f":s3,provider=Other,env_auth=true,endpoint='{fault_proxy.endpoint}':{s3_server.bucket}/{s3_prefix}"
    words = {"server": s3_server, "endpoint": fault_proxy.endpoint, "RCLONE_CONFIG": ""}
    tool("rclone", "copy", tmp_path, remote, **words)
    tool("rclone", "check", "--download", tmp_path, remote, **words)
    assert tool("rclone", "lsf", remote, **words).split() == [f"f{n}" for n in range(5)]
    assert fault_proxy.counts()["requests"] > 10


# Nothing is left behind.


def script(kind, *words):
    done = subprocess.run([SERVERS / kind, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.returncode, dict(line.split("=", 1) for line in done.stdout.splitlines()), done.stderr


def processes(folder):
    """Those whose command line names the folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in path.read_bytes():
                yield int(path.parent.name)


def wait_until(what, seconds=30):
    deadline = time.monotonic() + seconds * SLOW
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["seaweedfs", "rclone-s3"])
def test_up_and_down_leave_nothing(tmp_path, kind):
    folder = tmp_path / "server"
    status, settings, _ = script(kind, "up", folder)
    assert status == 0 and set(settings) == {"CKPT_TEST_S3_SERVER", "CKPT_TEST_S3_ENDPOINT", "CKPT_TEST_S3_BUCKET", "AWS_ACCESS_KEY_ID",
                                             "AWS_SECRET_ACCESS_KEY", "AWS_REGION"}
    state = json.loads((folder / "server.json").read_text())
    assert list(processes(folder))
    status, _, message = script(kind, "up", folder)
    assert status != 0 and "already" in message
    assert listens_on_loopback_alone([pid for pid, _ in state["processes"]])
    assert script(kind, "down", folder)[0] == 0
    assert not folder.exists() and not list(processes(folder))
    status, _, message = script(kind, "down", folder)
    assert status != 0 and str(folder) in message


def listens_on_loopback_alone(pids):
    """All TCP sockets of these processes that listen."""
    sockets = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(fd))
    places = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                places.append(fields[1].partition(":")[0])
    return bool(places) and set(places) <= {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


def test_an_owner_that_is_killed_takes_its_server_along(tmp_path):
    folder = tmp_path / "server"
    with subprocess.Popen(["sleep", "1000"]) as owner:
        assert script("rclone-s3", "up", folder, "--until", str(owner.pid))[0] == 0
        assert list(processes(folder))
        owner.kill()
        owner.wait()
        wait_until(lambda: not folder.exists() and not list(processes(folder)))


def with_s3(*words, **environment):
    return subprocess.Popen([SERVERS / "with-s3", "--server", "rclone-s3", *words], env=os.environ | environment, stdout=subprocess.PIPE, text=True)


def test_with_s3_gives_the_settings_and_the_status(tmp_path):
    with with_s3("sh", "-c", 'echo "$CKPT_TEST_S3_ENDPOINT $CKPT_TEST_S3_BUCKET $AWS_REGION ${#AWS_SECRET_ACCESS_KEY}"; exit 7',
                 CKPT_TEST_DIR=str(tmp_path)) as process:
        out = process.communicate()[0].split()
    assert process.returncode == 7
    assert out[0].startswith("http://127.0.0.1:") and out[1:] == ["ckptfs", "us-east-1", "40"]
    assert not list(tmp_path.iterdir())


def test_with_s3_puts_a_proxy_in_front(tmp_path):
    schedule = json.dumps({"rules": [{"do": "status", "status": 503}]})
    code = ("import os, sys, urllib.request as u, urllib.error\n"
            "try: u.urlopen(os.environ['CKPT_TEST_S3_ENDPOINT'])\n"
            "except urllib.error.HTTPError as e: print(e.code)\n"
            "print(os.environ['CKPT_TEST_S3_DIRECT'])\n")
    with with_s3("--proxy", schedule, "--log", tmp_path / "log", sys.executable, "-c", code, CKPT_TEST_DIR=str(tmp_path)) as process:
        code, endpoint = process.communicate()[0].split()
    assert process.returncode == 0 and code == "503" and endpoint.startswith("http://127.0.0.1:")
    assert [json.loads(line)["did"] for line in (tmp_path / "log").read_text().splitlines()] == ["status"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_with_s3_that_is_ended_leaves_no_server(tmp_path, number):
    with with_s3("--proxy", "{}", "sh", "-c", "echo $$; exec sleep 1000", CKPT_TEST_DIR=str(tmp_path)) as process:
        command = int(process.stdout.readline())
        assert list(processes(tmp_path))
        process.send_signal(number)
        process.wait()
        wait_until(lambda: not list(processes(tmp_path)))
        with contextlib.suppress(ProcessLookupError):
            os.kill(command, signal.SIGKILL)
    wait_until(lambda: not list(tmp_path.iterdir()))
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)


def test_with_s3_says_when_a_command_is_not_there(tmp_path):
    with with_s3(SOURCE / "no-such-program", CKPT_TEST_DIR=str(tmp_path)) as process:
        process.communicate()
    assert process.returncode == 127
    assert not list(tmp_path.iterdir())
