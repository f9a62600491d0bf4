"""Many fault schedules on the C stack in front of a real server: playing.py says what one is, objects.c and nodes.c what must hold.

CKPT_TEST_SCHEDULES=N plays so many, CKPT_TEST_SEED=N others; tests/run --full 500, --long 10,000.
"""

import collections
import concurrent.futures
import contextlib
import os
import queue
import time

import pytest

from schedules import playing
from support.object_servers import FaultProxy

FULL = os.environ.get("CKPT_TEST_FULL", "") not in ("", "0")
LONG = os.environ.get("CKPT_TEST_LONG", "") not in ("", "0")
COUNT = int(os.environ.get("CKPT_TEST_SCHEDULES") or (10_000 if LONG else 500 if FULL else 50))
FIRST = int(os.environ.get("CKPT_TEST_SEED", "1"))
AT_ONCE = 8  # most of their time is waiting
WRONG_MAX = 3
ACTS = 1000
ID_AT = 30  # of a byte of the id in store.json


@pytest.fixture
def proxies(s3_server):
    """A queue of proxies, one for each schedule that is being played."""
    with contextlib.ExitStack() as stack:
        made = queue.Queue()
        for _ in range(AT_ONCE):
            made.put(stack.enter_context(FaultProxy(s3_server.endpoint)))
        yield made


def test_nothing_is_lost_or_wrong_under_any_schedule(s3_server, proxies, capsys):
    wrong, played, began = [], collections.Counter(), time.monotonic()

    def play(seed):
        if len(wrong) >= WRONG_MAX:
            return 0
        proxy = proxies.get()
        try:
            for program in playing.PROGRAMS:
                problem, faults = playing.play(program, s3_server, proxy, seed)
                played.update(faults)
                wrong.extend([problem] if problem else [])
        finally:
            proxies.put(proxy)
        return 1

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        count = sum(pool.map(play, range(FIRST, FIRST + COUNT)))
    assert not wrong, "\n".join(wrong)
    with capsys.disabled():
        print(f"{count} schedules in {time.monotonic() - began:.0f} s, {sum(played.values())} faults: {dict(sorted(played.items()))}", flush=True)
    if COUNT >= 50:
        assert not playing.KINDS - played.keys(), "these faults were never played"


def test_a_busy_store_costs_a_fifth_more_requests_at_most(s3_server, proxies):
    """One request in ten is refused with 503. Each call succeeds all the same."""
    proxy = proxies.get()
    counts = []
    for rules in ([], [{"do": "status", "status": 503, "chance": 0.1}]):
        proxy.renew()
        proxy.play(*rules, seed=FIRST)
        wrong, _ = playing.run("objects", s3_server, proxy, {"CKPT_PLAY_STRICT": "1", "CKPT_PLAY_ACTS": str(ACTS), "CKPT_PLAY_SEED": str(FIRST)})
        assert not wrong, wrong
        counts.append(proxy.counts())
    quiet, busy = (c["requests"] for c in counts)
    assert quiet > ACTS / 2 and counts[1]["by_fault"]["status"] > quiet / 20
    assert quiet * 1.05 < busy <= quiet * 1.2, (quiet, busy)


def test_a_flipped_bit_of_the_stores_id_makes_no_node_of_another_store(s3_server, proxies):
    """The id is a UUID, and a digit of it that is flipped is a digit."""
    proxy = proxies.get()
    proxy.play({"op": "GetObject", "key": "*/store.json", "nth": [1, 4], "do": "flip", "at": ID_AT})
    wrong, _ = playing.run("nodes", s3_server, proxy, {"CKPT_PLAY_SEED": str(FIRST)})
    assert not wrong, wrong
    assert proxy.counts()["by_fault"].get("flip") == 2, proxy.counts()
