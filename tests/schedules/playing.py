"""Fault schedules that are played on the C stack: what each has, and one run of it.

A schedule is a seed. It decides what the network does (tests/servers/schedule.py) and what the programs do behind it: `objects` makes every
call on the objects of a bucket, `nodes` pushes and pulls steps. Both judge by themselves (objects.c, nodes.c).
"""

import json
import os
import random
import shlex
import subprocess
from pathlib import Path

from servers.schedule import FAULTS, LISTINGS, random_details, random_schedule

SOURCE = Path(__file__).resolve().parents[2]
PROGRAMS = ("objects", "nodes")
RULES = 12
LIMIT_S = 400  # of a program; what it does ends long before

OPS = ["PutObject", "GetObject", "HeadObject", "ListObjectsV2", "DeleteObject"]
PARTS = ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"]
# Of a page behind the first one.
ON_PAGES = ["reset-before", "reset-after", "status", "expired-token", "stall", "slow", "truncate", "wrong-length", "repeat-page", "disorder", "no-token", "same-token"]
PAGES = (0, 1, 2, 5)  # keys on a page of a listing, by the seed; 0: as many as the server takes
SPURIOUS = {"do": "status", "status": 412, "op": "PutObject", "conditional": True}


def has_parts(program, seed):
    """100 MB there and back: for one of twenty."""
    return program == "objects" and seed % 20 == 5


def is_fair(seed):
    """Other schedules have a 412 for a key that is free."""
    return seed % 4 != 3


def page_keys(seed):
    return PAGES[seed // 4 % len(PAGES)]


def page_fault(chance):
    do = chance.choice(ON_PAGES)
    details = {"token": chance.choice(["same", "next"])} if do == "repeat-page" else random_details(chance, do)
    return {"op": list(LISTINGS), "continued": True, "nth": sorted(chance.sample(range(1, 9), 2)), "do": do, **details}


def schedule(program, seed):
    """The schedule of this seed, as the proxy takes it. Each rule ends, so that whoever tries again succeeds."""
    made = random_schedule(seed, RULES, ops=OPS + PARTS * has_parts(program, seed))
    chance = random.Random(f"more {seed}")
    # A busy store refuses again and again.
    made["rules"] += [{"do": "status", "status": 503, "chance": 0.2, "times": 20}] * (chance.random() < 0.3)
    made["rules"] += [{"op": list(LISTINGS), "do": "slow", "mb_per_s": 0.02, "times": 3}] * (chance.random() < 0.3)
    if has_parts(program, seed):
        made["rules"].insert(0, {"op": "CompleteMultipartUpload", "nth": 1, "do": "ok-with-error", "applied": seed % 40 == 5})
    if not is_fair(seed):
        made["rules"].insert(0, SPURIOUS | {"nth": sorted(chance.sample(range(1, 13), 3))})
    if page_keys(seed):
        pages = random.Random(f"pages {seed}")
        made["rules"][:0] = [page_fault(pages) for _ in range(3)]
    if program == "objects":
        # No call on a part of an object can know it: those who keep hashes of the parts do (nodes.c).
        made["rules"] = [rule for rule in made["rules"] if rule["do"] != "flip" or rule["where"] == "request"]
    return made


def settings(program, seed):
    return {"CKPT_PLAY_PAGE": str(page_keys(seed)), "CKPT_PLAY_SEED": str(seed), "CKPT_PLAY_FAIR": str(int(is_fair(seed))), "CKPT_PLAY_PARTS": str(int(has_parts(program, seed)))}


def program_path(program):
    build = Path(os.environ.get("CKPT_BUILD_DIR") or SOURCE / "build")
    return build / f"tests/play_{program}"


def again(program, seed):
    """The command that plays it again."""
    words = [f"{k}={v}" for k, v in settings(program, seed).items()]
    words += [f"CK_DEFAULT_TIMEOUT={LIMIT_S}", "CKPT_PLAY_SHOW=1", "tests/servers/with-s3", "--log", "/tmp/requests", "--proxy", json.dumps(schedule(program, seed)),
              os.path.relpath(program_path(program), SOURCE)]
    return shlex.join(words)


def run(program, server, proxy, more):
    """(what is wrong or None, its output), of the program with these settings, behind this proxy."""
    environment = os.environ | server.settings | {"CKPT_TEST_S3_ENDPOINT": proxy.endpoint, "CKPT_TEST_S3_DIRECT": server.endpoint,
                                                  "CK_DEFAULT_TIMEOUT": str(LIMIT_S)} | more
    done = subprocess.run([program_path(program)], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    return (said if done.returncode else None), said


def play(program, server, proxy, seed):
    """(what is wrong or None, {fault: how often it was played}) of one schedule."""
    proxy.renew()
    proxy.play(**schedule(program, seed))
    wrong, _ = run(program, server, proxy, settings(program, seed))
    played = proxy.counts()["by_fault"]
    proxy.renew()
    return wrong and f"schedule {seed} of {program}:\n{wrong}\n  again: {again(program, seed)}", played


KINDS = set(FAULTS)
