"""Schedules of the fault proxy: which requests are disturbed, and how.

A schedule is a dict, or JSON of it:

    {"seed": 7, "mb_per_s": 200, "rules": [{"op": "PutObject", "key": "log/*", "nth": 3, "do": "reset-after"}, ...]}

`mb_per_s` is the rate of the link, in each direction. A rule chooses requests by all of these that it has:

    op, method    an S3 operation ("PutObject", "ListObjectsV2", ...), a method; or a list of them
    key           a pattern of the shell for the key, for a listing its prefix
    conditional   whether the request has If-Match or If-None-Match
    continued     whether it asks for a page of a listing behind the first one
    nth           of the requests chosen so far the n-th, from 1, or a list of such
    every         of the requests chosen so far each n-th
    chance        of the requests chosen so far some, from 0 to 1: the same ones for the same seed
    times         at most so many; without nth, every and chance all requests are disturbed

The first rule that chooses a request acts on it; the other rules count it too. What `do` is, and what it takes:

    reset-before                  the client is reset, and the server gets nothing
    cut-request  bytes            the server gets so many bytes of the body, then both are reset
    reset-after                   the server does it; the client is reset and gets no reply
    late  seconds, answer         the server gets it so many seconds later; the client is reset now, or gets status `answer`
    status  status, code, headers, applied
                                  an S3 error instead of the reply; with applied the server has done it
    expired-token  status         403 ExpiredToken
    ok-with-error  code, applied  200 with an error document in it
    stall  seconds, where, bytes  waits before the request is sent ("request"), before the reply ("reply"), or after so many
                                  bytes of the reply's body ("body")
    slow  mb_per_s                the reply's body comes at this rate
    truncate  bytes, reset        the reply's body ends after so many bytes (half of them), by an end or by a reset
    wrong-length  by              Content-Length of the reply is wrong by so much
    bad-checksum                  the reply's x-amz-checksum-... headers are wrong; one is added where there is none
    bad-etag                      the reply's ETag is that of other bytes
    flip  at, bit, where          one bit of the body is flipped, of the "reply" or of the "request"; in its middle
    repeat-page  token            a page of a listing is the previous one again, with the "same" token as before or the "next"
    disorder                      a page of a listing has its keys in the order of their ends
    no-token                      a page says that there are more, and not where they begin
    same-token                    a page says that the next one begins where it began itself
"""

import fnmatch
import json
import random
import threading

LISTINGS = ("ListObjectsV2", "ListObjects")
READS = ("GetObject", "HeadObject", *LISTINGS)
WRITES = ("PutObject", "UploadPart", "CreateMultipartUpload", "CompleteMultipartUpload", "AbortMultipartUpload", "DeleteObject",
          "DeleteObjects", "CopyObject")
ALL = (*READS, *WRITES)
CHOOSERS = {"op", "method", "key", "conditional", "continued", "nth", "every", "chance", "times"}

# The parameters of each fault, and the operations that a random schedule plays it on.
FAULTS = {
    "reset-before": (set(), ALL),
    "cut-request": ({"bytes"}, ("PutObject", "UploadPart")),
    "reset-after": (set(), ALL),
    "late": ({"seconds", "answer"}, ("PutObject", "UploadPart", "CompleteMultipartUpload", "DeleteObject")),
    "status": ({"status", "code", "headers", "applied"}, ALL),
    "expired-token": ({"status"}, ALL),
    "ok-with-error": ({"code", "applied"}, ("CompleteMultipartUpload", "CopyObject")),
    "stall": ({"seconds", "where", "bytes"}, ALL),
    "slow": ({"mb_per_s"}, ("GetObject", *LISTINGS)),
    "truncate": ({"bytes", "reset"}, ("GetObject", *LISTINGS)),
    "wrong-length": ({"by"}, ("GetObject", *LISTINGS)),
    "bad-checksum": (set(), ("GetObject",)),
    "bad-etag": (set(), ("GetObject", "PutObject", "UploadPart")),
    "flip": ({"at", "bit", "where"}, ("GetObject", "PutObject", "UploadPart")),
    "repeat-page": ({"token"}, LISTINGS),
    "disorder": (set(), LISTINGS),
    "no-token": (set(), LISTINGS),
    "same-token": (set(), LISTINGS),
}


def operation(method, bucket, key, query, headers):
    """The name that S3 gives to a request, or "Other"."""
    if not bucket:
        return "ListBuckets" if method == "GET" else "Other"
    if not key:
        if method == "GET" and not query.keys() & {"uploads", "location", "versioning", "versions", "policy", "lifecycle", "object-lock"}:
            return "ListObjectsV2" if query.get("list-type") == "2" else "ListObjects"
        if method == "GET" and "uploads" in query:
            return "ListMultipartUploads"
        if method == "POST" and "delete" in query:
            return "DeleteObjects"
        return {"PUT": "CreateBucket", "HEAD": "HeadBucket", "DELETE": "DeleteBucket"}.get(method, "Other") if not query else "Other"
    if "uploadId" in query:
        part = "UploadPartCopy" if headers.get("x-amz-copy-source") else "UploadPart"
        return {"PUT": part, "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload", "GET": "ListParts"}.get(method, "Other")
    if method == "POST" and "uploads" in query:
        return "CreateMultipartUpload"
    if method == "PUT":
        return "CopyObject" if headers.get("x-amz-copy-source") else "PutObject"
    return {"GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject"}.get(method, "Other")


def as_list(value):
    return value if isinstance(value, list | tuple) else [value]


class Rule:
    def __init__(self, number, words, seed):
        unknown = words.keys() - CHOOSERS - {"do"} - FAULTS[words["do"]][0] if words.get("do") in FAULTS else {"do"}
        if unknown:
            raise ValueError(f"rule {number} has an unknown word, or a wrong `do`: {sorted(unknown)} in {words}")
        self.number, self.words, self.seed = number, words, seed
        self.chosen = self.fired = 0

    @property
    def do(self):
        return self.words["do"]

    def get(self, name, default=None):
        return self.words.get(name, default)

    def is_about(self, request):
        words = self.words
        if self.do == "repeat-page" and not request.is_continued:
            return False
        return (("op" not in words or request.op in as_list(words["op"]))
                and ("method" not in words or request.method in as_list(words["method"]))
                and ("key" not in words or fnmatch.fnmatchcase(request.key, words["key"]))
                and ("conditional" not in words or request.is_conditional == words["conditional"])
                and ("continued" not in words or request.is_continued == words["continued"]))

    def fires(self):
        """True when the rule acts on the request that it was just counted for."""
        words = self.words
        if self.fired >= words.get("times", float("inf")):
            return False
        if "nth" in words:
            return self.chosen in as_list(words["nth"])
        if "every" in words:
            return self.chosen % words["every"] == 0
        if "chance" in words:
            return random.Random(f"{self.seed}.{self.number}.{self.chosen}").random() < words["chance"]
        return True


class Schedule:
    """A schedule in play. Threads: all may call choose()."""

    def __init__(self, words=None):
        words = words or {}
        if unknown := words.keys() - {"seed", "mb_per_s", "rules"}:
            raise ValueError(f"a schedule has no {sorted(unknown)}")
        self.mb_per_s = words.get("mb_per_s")
        self.rules = [Rule(n, rule, words.get("seed", 0)) for n, rule in enumerate(words.get("rules", []))]
        self.lock = threading.Lock()

    @property
    def remembers_pages(self):
        return any(rule.do == "repeat-page" for rule in self.rules)

    def choose(self, request):
        """The rule that acts on a request, or None. Each request is to be asked about once."""
        with self.lock:
            acting = None
            for rule in self.rules:
                if rule.is_about(request):
                    rule.chosen += 1
                    if acting is None and rule.fires():
                        rule.fired += 1
                        acting = rule
            return acting


def read_schedule(text):
    """A schedule as a command line gives it: JSON, `seed:N`, or a file's name."""
    if text.startswith("seed:"):
        return random_schedule(int(text.removeprefix("seed:")))
    return json.loads(text if text.lstrip().startswith("{") else open(text, encoding="utf-8").read())


def random_details(chance, do):
    """Parameters of a fault by chance; the others have their defaults."""
    return {
        "cut-request": lambda: {"bytes": chance.choice([0, 1, 1000, 1 << 16])},
        "late": lambda: {"seconds": chance.choice([0.2, 1, 3]), **chance.choice([{}, {"answer": 500}, {"answer": 503}])},
        "status": lambda: chance.choice([{"status": 500}, {"status": 503}, {"status": 503}, {"status": 429}, {"status": 409},
                                         {"status": 500, "applied": True}, {"status": 503, "applied": True}]),
        "ok-with-error": lambda: {"applied": chance.random() < 0.5},
        "stall": lambda: {"seconds": chance.choice([0.1, 0.5, 2]), "where": chance.choice(["request", "reply", "body"])},
        "slow": lambda: {"mb_per_s": chance.choice([1, 5])},
        "truncate": lambda: {"reset": chance.random() < 0.5},
        "wrong-length": lambda: {"by": chance.choice([-1, 1, 4096])},
        "flip": lambda: {"bit": chance.randrange(8), "where": chance.choice(["reply", "request"])},
    }.get(do, dict)()


def random_schedule(seed, rules=8, faults=None, ops=ALL):
    """A schedule that the seed determines. Each of its rules acts three times at most, so that a client that tries again succeeds.

    `faults` and `ops` limit it to some of FAULTS and of ALL. It has no spurious 412: only a rule by hand can say when that is fair.
    """
    chance = random.Random(f"schedule {seed}")
    made = []
    for _ in range(rules):
        do = chance.choice(sorted(faults or FAULTS))
        fitting = sorted(set(FAULTS[do][1]) & set(ops))
        if not fitting:
            continue
        details = random_details(chance, do)
        if do == "flip":
            fitting = sorted(set(fitting) & ({"GetObject"} if details["where"] == "reply" else {"PutObject", "UploadPart"})) or fitting
        nth = sorted(chance.sample(range(1, 13), chance.randint(1, 3)))
        made.append({"op": chance.choice(fitting), "nth": nth, "do": do, **details})
    return {"seed": seed, "rules": made}
