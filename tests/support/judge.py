"""Whether what is on a disk after a power cut is what the clients' record says that it may be."""

import itertools

ANY = object()


class Wrong(AssertionError):
    pass


def _phase(act, position):
    """Where an act is when the log is that long: a write that is not in the log yet cannot be seen."""
    if act["end"] is not None and act["end"] <= position:
        return "done"
    return "under way" if act["begin"] < position else "to come"


def allowed_steps(acts, position):
    """Every set of steps that may be listed: [{PATH: {FILE: IDENTITY}}], that with nothing of what is under way first."""
    now, open_acts = {}, []
    for act in acts:
        phase = _phase(act, position)
        if phase == "done":
            _apply(now, act)
        elif phase == "under way":
            open_acts.append(act)
    worlds = []
    for some in itertools.product([False, True], repeat=len(open_acts)):
        world = dict(now)
        for happened, act in zip(some, open_acts):
            if happened:
                _apply(world, act)
        worlds.append(world)
    return worlds


def _apply(world, act):
    for path, files in act["steps"].items():
        if files is None:
            world.pop(path, None)
        else:
            world[path] = files


def allowed_plain(acts, position):
    """{PATH: what it may hold, or ANY}. What is not durable may be there or not, in any order that a crash can make of it."""
    may = {}
    for act in acts:
        phase = _phase(act, position)
        for path, what in act["plain"].items():
            if phase == "done" and act["durable"]:
                may[path] = {what}
            elif phase == "under way" and path in act["new"]:
                may[path] = ANY
            elif phase != "to come":
                may.setdefault(path, {None}).add(what)
    return may


def expected_trash(acts, position):
    """Names that the trash must have: deleted for sure, and nothing was done to the name since."""
    deleted = {}
    for act in acts:
        phase = _phase(act, position)
        for path, files in act["steps"].items():
            if phase != "to come":
                deleted[path] = phase == "done" and files is None and len(act["steps"]) == 1
    return {path for path, is_deleted in deleted.items() if is_deleted}


def judge(acts, position, seen):
    """seen: {"steps", "plain", "trash"} as look.c and points.py say it. Raises Wrong."""
    if "error" in seen:
        raise Wrong(seen["error"])
    worlds = allowed_steps(acts, position)
    if seen["steps"] not in worlds:
        nearest = min((_differences(world, seen["steps"]) for world in worlds), key=len)
        raise Wrong("the steps are not what they may be:\n  " + "\n  ".join(nearest))
    may = allowed_plain(acts, position)
    for path in may.keys() | seen["plain"].keys():
        found = seen["plain"].get(path)
        allowed = may.get(path, {None})
        if allowed is not ANY and found not in allowed:
            raise Wrong(f"{path} holds {found}, not one of {allowed}")
    lost = expected_trash(acts, position) - set(seen["trash"] or ())
    if lost and seen["trash"] is not None:
        raise Wrong(f"deleted, and not in the trash: {sorted(lost)}")


def _differences(world, seen):
    out = []
    for path in sorted(world.keys() | seen.keys()):
        want, found = world.get(path), seen.get(path)
        if found is None:
            out.append(f"{path} is not listed")
        elif want is None:
            out.append(f"{path} is listed")
        else:
            for name in sorted(want.keys() | found.keys()):
                if want.get(name) != found.get(name):
                    out.append(f"{path}/{name}: {found.get(name)}, not {want.get(name)}")
    return out
