"""Power cuts of a node whose store is in a bucket: its work directory is on the disk that is cut, the bucket on another one.

A proxy between them writes down when each request came and when its reply did, as the position of the disk's log. So the bucket is known at
each point: what was answered before is in it. Each put that was under way is in it, or is not, or comes when the node is back: a request
on the network survives the machine that has sent it. A put that was answered at the point itself counts as one under way, since the node
has written nothing after the answer. Objects are put once and never change, so their bytes are taken at the end.

Judged is, after the remount and `wait --remote`: what the clients' record says of any disk (support/judge.py), on the node and on another
one that has nothing of its own; that both see the same; and that all bytes can be read. Before the remount another node has all that
`wait --remote` had said to be there.
"""

import contextlib
import json
import random
import shutil
import urllib.parse
import uuid
from pathlib import Path

from power import cuts, points, recording
from servers.fault_proxy import Proxy
from support.acts import see
from support.judge import Wrong, judge
from support.mounting import Mount, MountFailed

FOLDERS = ("", "keep/", "run/")
# Puts take a while, so that the power fails in them.
SLOW = {"rules": [{"op": "PutObject", "chance": 0.3, "do": "stall", "seconds": 0.1, "where": "reply"},
                  {"op": "PutObject", "chance": 0.2, "do": "stall", "seconds": 0.05, "where": "request"}]}
WAIT_S = 40
FATES = ["is there", "later", "never comes"]  # of a put that is under way
OPEN_ACTS_MAX = 10  # of so many the judge tries each order


class Recorder(Proxy):
    """A proxy that keeps what it has passed on, with the disk's time."""

    def __init__(self, endpoint, clock, schedule):
        self.clock = clock
        self.lines = []
        super().__init__(endpoint, schedule)

    def write(self, line):
        self.lines.append(line)


class Node(Mount):
    """A mount of an URL with this work directory."""

    def __init__(self, world, url, path, work_dir, endpoint):
        super().__init__(world, url, path, "passthrough", [f"work_dir={work_dir}", f"endpoint={endpoint}", "commit_quiet=off"], ())
        self.store = url  # a Path would take a slash from it

    def wait(self):
        self.world.program("wait", self.path, "--remote", "--timeout", f"{WAIT_S}s", timeout=WAIT_S + 10)


class Bucket:
    """A store below a new prefix of the server's bucket."""

    def __init__(self, server):
        self.server, self.client = server, server.client()
        self.prefix = f"power-{uuid.uuid4().hex[:12]}/"
        self.url = f"s3://{server.bucket}/{self.prefix.rstrip('/')}"

    def put(self, key, data):
        with contextlib.suppress(self.client.exceptions.ClientError):  # it is there
            self.client.put_object(Bucket=self.server.bucket, Key=self.prefix + key, Body=data, IfNoneMatch="*")

    def objects(self):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.server.bucket, Prefix=self.prefix)
        keys = [row["Key"] for page in pages for row in page.get("Contents", [])]
        return {key.removeprefix(self.prefix): self.client.get_object(Bucket=self.server.bucket, Key=key)["Body"].read() for key in keys}

    def point_to(self, work_dir, endpoint):
        """The store in this work directory is that of this bucket. A mount would try the server first, which takes longer than a test has."""
        path = work_dir / "store.json"
        about = json.loads(path.read_text())
        about["remote"] = {"url": self.url, "options": [f"endpoint={endpoint}"], "probed": True}
        path.write_text(json.dumps(about))

    def new_work_dir(self, world, work_dir, identity):
        world.program("init", work_dir)
        path = work_dir / "store.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: identity[key] for key in ("id", "created_ns")}))
        self.point_to(work_dir, self.server.endpoint)


# --- Recording ----------------------------------------------------------------------------------------------------------------


def make(world, server, folder, filesystem, seed, acts):
    folder = Path(folder)

    def work(store, mountpoint, record, position):
        bucket, proxy = Bucket(server), Recorder(server.endpoint, position, SLOW | {"seed": seed})
        world.program("init", store)
        bucket.put("store.json", (store / "store.json").read_bytes())
        bucket.point_to(store, proxy.endpoint)
        waits = []

        def wait():
            begin = position()
            node.wait()
            waits.append([begin, position()])
        node = Node(world, bucket.url, mountpoint, store, proxy.endpoint)
        world.callback(node._end)
        recording.use(world, node.start(), store, record, seed, acts, wait)
        kept = bucket.objects()
        for key, data in kept.items():
            path = folder / "bucket" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return {"waits": waits, "puts": [put for line in proxy.lines if (put := put_of(line, bucket, kept))]}
    return recording.make(world, folder, filesystem, seed, acts, work)


def put_of(line, bucket, kept):
    """[key, when it came, when it was answered] of a put that the server has done."""
    if line.get("op") != "PutObject" or line["status"] != 200:
        return None
    key = urllib.parse.unquote(line["key"]).removeprefix(bucket.prefix)
    if key.startswith("probe/"):
        return None
    assert key in kept, f"{key} was put and is gone: its bytes are not known"
    return [key, *line["times"]]


# --- Points -------------------------------------------------------------------------------------------------------------------


def choose(recorded, log, count):
    """As points.choose(); but every second point lies in a put, of entries and of packs alike."""
    dice, chosen = random.Random(f"puts {recorded.seed}"), set()
    kinds = {}
    for key, came, answered in recorded.about["puts"]:
        kinds.setdefault(key.partition("/")[0], []).append((came, answered))
    for _ in range(count // 2):
        came, answered = dice.choice(kinds[dice.choice(sorted(kinds))])
        at = max(dice.randint(came, answered), recorded.acts[0]["begin"] + 1)
        chosen.add((at, dice.choice([points.NOTHING, points.ALL, 2 + dice.randrange(30)])))
    return sorted(chosen | set(points.choose(recorded, log, count - len(chosen))))


def is_in_put(recorded, position):
    return any(came <= position <= answered for _, came, answered in recorded.about["puts"])


def bucket_at(server, recorded, position, variant):
    """(the bucket as it was, [the puts that come later])."""
    dice, bucket, later = random.Random(f"bucket {recorded.seed} {position} {variant}"), Bucket(server), []
    worst = 0
    bucket.put("store.json", (recorded.folder / "bucket/store.json").read_bytes())
    for key, came, answered in recorded.about["puts"]:
        data = (recorded.folder / "bucket" / key).read_bytes()
        fate = "is there" if answered < position else "never comes" if came > position else dice.choice(FATES)
        # The node puts an entry when all that it names was answered, which may be at this same point. Puts stand in the order of their answers.
        worst = max(worst, FATES.index(fate) if came <= position else 0)
        if key.startswith("log/"):
            fate = max(fate, FATES[worst], key=FATES.index)
        if fate == "is there":
            bucket.put(key, data)
        elif fate == "later":
            later.append((key, data))
    return bucket, later


@contextlib.contextmanager
def another_node(world, bucket, recorded, name):
    """A node that has nothing but what is in the bucket."""
    work_dir = world.scratch / f"work-{name}"
    bucket.new_work_dir(world, work_dir, json.loads((recorded.folder / "bucket/store.json").read_text()))
    with mounted(world, bucket, work_dir, name) as node:
        yield node
    shutil.rmtree(work_dir)


@contextlib.contextmanager
def mounted(world, bucket, work_dir, name):
    path = world.scratch / f"mnt-{name}"
    path.mkdir(exist_ok=True)
    node = Node(world, bucket.url, path, work_dir, bucket.server.endpoint)
    try:
        yield node.start()
        told = [line for line in node.errors() if "cannot" in line]
        if told:
            raise Wrong(f"node {name} says {told}")
        node.umount()
    finally:
        node._end()


def judge_lost(acts, position, waits, seen):
    """The disk is lost: what `wait --remote` has said to be there is, and what was done later may be."""
    sure = max((begin for begin, end in waits if end <= position), default=0)
    known = [act | {"end": act["end"] if act["end"] is not None and act["end"] <= sure else None} for act in acts]
    if sum(act["end"] is None and act["begin"] < position for act in known) <= OPEN_ACTS_MAX:
        judge([act | {"plain": {}} for act in known], position, seen | {"plain": {}})


def look(node, verify=False):
    seen = see(node.path, FOLDERS)
    if verify:
        node.world.program("verify", node.path, "--read-data")
    return seen


def check(points_, server, position, variant):
    """What is wrong at this point, or None."""
    recorded, world = points_.recording, points_.world
    acts = recorded.acts
    try:
        bucket, later = bucket_at(server, recorded, position, variant)
        with another_node(world, bucket, recorded, "lost") as node:
            judge_lost(acts, position, recorded.about["waits"], look(node))
        with points_.at(position, variant) as store:
            bucket.point_to(store, server.endpoint)
            with mounted(world, bucket, store, "cut") as node:
                node.wait()
                seen = look(node, verify=True)
                judge(acts, position, seen)
                for key, data in later:
                    bucket.put(key, data)
                with another_node(world, bucket, recorded, "other") as other:
                    there = look(other, verify=True)
        if there != seen:
            raise Wrong(f"another node sees other things: {differences(seen, there)}")
    except (Wrong, OSError, AssertionError, RuntimeError, MountFailed) as e:
        return str(e) or repr(e)
    return None


def differences(one, other):
    out = {}
    for kind in ("steps", "plain"):
        for path in one[kind].keys() | other[kind].keys():
            if one[kind].get(path) != other[kind].get(path):
                out[path] = (one[kind].get(path), other[kind].get(path))
    return out


def run(world, server, filesystem, seed, acts, count, folder):
    """A new recording, and the power cuts of it; raises when something is wrong. Returns how many points were tried, how many of them in a put."""
    folder = Path(folder)
    recorded = make(world, server, folder / "recording", filesystem, seed, acts)
    points_ = points.Points(world, recorded, folder / "points", cuts.look_program())
    tried = in_puts = 0
    for position, variant in choose(recorded, points_.log, count):
        if problem := check(points_, server, position, variant):
            kept = recorded.keep(cuts.build_folder() / f"power/bucket-{filesystem}-{seed}")
            shutil.copytree(recorded.folder / "bucket", kept.folder / "bucket", dirs_exist_ok=True)
            under_way = [act["what"] for act in acts_under_way(recorded, position)]
            raise AssertionError(f"point {position}.{variant} of a recording on {filesystem}, seed {seed}: {problem}\nunder way: {under_way}\n"
                                 f"  again: tests/power/replay {kept.folder} {position}.{variant}")
        tried += 1
        in_puts += is_in_put(recorded, position)
    return tried, in_puts


def acts_under_way(recorded, position):
    return [act for act in recorded.acts if act["begin"] < position < (act["end"] or position + 1)]
