"""What operations do to the state of a log: a model, short enough to be read.

It is written from core/state/act.h, core/state/state.h and rule L4 (an operation that does not fit is void, and changes nothing). It
knows no bytes: an act is a tuple of values, the line that tests/state/apply.c takes.
"""

import collections
import copy
import re

SAVE, AMEND, REPACK, RESTORE, NOTE, DELETE, UNDELETE, EXPIRE, RENAME, FLAG, SET = range(1, 12)
MKDIR, FILE, REMOVE, MOVE = range(12, 16)  # of the plain tree: not in the log of a node (tests/unit/test_plain.c)
CONDEMN, HOLD = range(16, 18)  # of objects: neither (tests/unit/test_condemned.c)
DROP, MERGE = range(18, 20)  # of a store with a remote alone (tests/unit/test_shared_drop.c)
PINNED, TEMPORARY = 1, 2
ANY = 2**64 - 1
OK, VOID, NEWER = 0, 1, -95  # -ENOTSUP

FIELDS = "kind node number required step version flags time replaces folder name key before value uid comm"
Act = collections.namedtuple("Act", FIELDS, defaults=("-", 0, 0, 0, "-", "-", "-", "-", 0, "-", 0, "-"))


def line(act):
    return " ".join(str(field) for field in act)


def number_of(name):
    digits = re.findall("[0-9]+", name)
    return int(digits[-1]) if digits else -1


class State:
    def __init__(self):
        self.numbers = {}  # of nodes
        self.steps = {}  # by id
        self.values = {}  # by key: the seq, the text

    def copy(self):
        return copy.deepcopy(self)

    def listed(self, place):
        return next((s for s in self.steps.values() if s["place"] == place and not s["deleted_by"]), None)

    def apply(self, act, seq):
        """0, VOID or NEWER. seq: of the entry that has the act."""
        if act.kind > MERGE:
            fits = False
            if act.required:
                return NEWER
        else:
            fits = RULES[act.kind](self, act, seq)
        if act.number:
            self.numbers[act.node] = max(act.number, self.numbers.get(act.node, 0))
        return OK if fits else VOID

    def save(self, act, seq):
        there = self.listed((act.folder, act.name))
        if act.step in self.steps or (there["id"] if there else "-") != act.replaces:
            return False
        if there:
            there.update(deleted_by=act.version, deleted_ns=act.time)
        self.steps[act.step] = {"id": act.step, "place": (act.folder, act.name), "versions": [], "deleted_by": 0, "deleted_ns": 0}
        return self.put_version(self.steps[act.step], act, act.flags, (seq, act.version))

    def put_version(self, step, act, flags, record=None):
        step.update(version=act.version, flags=flags, time=act.time)
        step["versions"].append((act.version, False, flags, act.time, record or step["versions"][-1][4], by(act), files(act.kind)))
        return True

    def step_of(self, act, listed):
        """The step that is meant, if it is listed, or in the trash; and its newest version is older than the act's."""
        step = self.steps.get(act.step)
        if not step or bool(step["deleted_by"]) == listed:
            return None
        if act.kind in (EXPIRE, RENAME):
            return step
        return step if act.version > step["versions"][-1][0] else None

    def amend(self, act, seq):
        step = self.step_of(act, listed=True)
        if not step or step["place"] != (act.folder, act.name):
            return False
        return self.put_version(step, act, act.flags, (seq, act.version))

    def delete(self, act, seq):
        step = self.step_of(act, listed=True)
        if not step or step["flags"] & PINNED:
            return False
        step["versions"].append((act.version, True, step["flags"], act.time, step["versions"][-1][4], by(act), files(DELETE)))
        step.update(deleted_by=act.version, deleted_ns=act.time)
        return True

    def undelete(self, act, seq):
        step = self.step_of(act, listed=False)
        if not step or act.version <= step["deleted_by"] or self.listed(step["place"]):
            return False
        step.update(deleted_by=0, deleted_ns=0)
        return self.put_version(step, act, step["flags"] & ~TEMPORARY)

    def expire(self, act, seq):
        step = self.step_of(act, listed=False)
        was_replaced = step and all(version != step["deleted_by"] for version, *_ in step["versions"])
        if not step or (step["flags"] & PINNED and not was_replaced) or act.version != max(step["versions"][-1][0], step["deleted_by"]):
            return False
        return bool(self.steps.pop(act.step))

    def rename(self, act, seq):
        step = self.step_of(act, listed=True)
        if not step or self.listed((act.folder, act.name)):
            return False
        step.update(place=(act.folder, act.name))
        return True

    def flag(self, act, seq):
        step = self.step_of(act, listed=True)
        return bool(step and self.put_version(step, act, act.flags))

    def set(self, act, seq):
        if act.before not in (ANY, self.values.get(act.key, (0, ""))[0]):
            return False
        self.values.pop(act.key, None)
        if act.value != "-":
            self.values[act.key] = (seq, act.value)
        return True

    def text(self):
        """As tests/state/apply.c says it."""
        said = "".join(f"{node}={number} " for node, number in sorted(self.numbers.items()))
        for step in sorted(self.steps.values(), key=lambda step: step["id"]):
            folder, name = step["place"]
            folder = "" if folder == "-" else folder
            said += f" | {step['id']} {folder}/{name} #{number_of(name)} {step['version']}{letters(step['flags'])}@{step['time']}"
            said += f" by {step['deleted_by']}@{step['deleted_ns']}:"
            for version, deleted, flags, time, (seq, of), who, how in step["versions"]:
                said += f" {version}{'d' if deleted else ''}{letters(flags)}@{time}={seq}/{of}{how}<{who}"
        for key, (seq, value) in sorted(self.values.items()):
            said += f" | {key}@{seq}={value}"
        return said


def files(kind):
    """Whether an act of this kind has saved the files, edited them, or left them as they were, maybe elsewhere."""
    return {SAVE: "s", RESTORE: "s", AMEND: "e", REPACK: "r"}.get(kind, "=")


def letters(flags):
    return ("p" if flags & PINNED else "") + ("t" if flags & TEMPORARY else "")


def by(act):
    return f"{'' if act.comm == '-' else act.comm}:{act.uid}@{act.node}"


RULES = {
    SAVE: State.save,
    AMEND: State.amend,
    REPACK: State.amend,
    RESTORE: State.amend,
    NOTE: State.amend,
    DELETE: State.delete,
    UNDELETE: State.undelete,
    EXPIRE: State.expire,
    RENAME: State.rename,
    FLAG: State.flag,
    SET: State.set,
}
