"""Power cuts at many points of a recording, each judged."""

import os
import subprocess
from pathlib import Path

from power import points, recording
from support.judge import Wrong, judge
from support.mounting import MountFailed

# One look in so many is through a real mount too, which takes as long as three others.
MOUNT_EVERY = 25
WRONG_MAX = 3
SOURCE = Path(__file__).resolve().parents[2]


def build_folder():
    return Path(os.environ.get("CKPT_BUILD_DIR") or SOURCE / "build")


def look_program():
    return Path(os.environ.get("CKPT_POWER_LOOK") or build_folder() / "tests/power_look")


def check(points_, position, variant, through_mount):
    """What is wrong at this point, or None."""
    acts = points_.recording.acts
    try:
        with points_.at(position, variant) as store:
            judge(acts, position, points_.look(store))
            if through_mount:
                judge(acts, position, points_.look_through_mount(store))
                judge_after(points_, store, position)
    except (Wrong, OSError, AssertionError, RuntimeError, MountFailed) as e:
        return str(e) or repr(e)
    return None


def judge_after(points_, store, position):
    """And the mount, which has saved a step more, has left the others as they were."""
    seen = points_.look(store)
    seen.get("steps", {}).pop("checkpoint-after", None)
    judge(points_.recording.acts, position, seen)


def try_recording(world, recorded, count, folder):
    """(how many points were tried, [(point, what is wrong)]), which is cut short."""
    wrong, tried = [], 0
    points_ = points.Points(world, recorded, folder, look_program())
    for tried, (position, variant) in enumerate(points.choose(recorded, points_.log, count), 1):
        if problem := check(points_, position, variant, tried % MOUNT_EVERY == 0):
            kernel = subprocess.run(["dmesg"], check=False, capture_output=True, text=True).stdout.splitlines()[-6:]
            again = check(points_, position, variant, False) or "nothing is wrong"
            wrong.append((f"{position}.{variant}", "\n".join([problem, *kernel, f"tried again at once: {again}"])))
            if len(wrong) == WRONG_MAX:
                break
    if not wrong and not points_.is_what_was_recorded():
        wrong.append(("", "the disk that the whole log makes is not the one that was recorded: the test itself is at fault"))
    return tried, wrong


def report(recorded, wrong):
    """For whoever reads of the failure; the recording is kept."""
    kept = recorded.keep(build_folder() / f"power/{recorded.filesystem}-{recorded.seed}")
    lines = [f"{len(wrong)} points of a recording on {recorded.filesystem}, seed {recorded.seed}, are wrong"]
    for point, problem in wrong:
        lines += [f"point {point}: {problem}", f"  again: tests/power/replay {kept.folder} {point}"]
    return "\n".join(lines)


def run(world, filesystem, seed, acts, count, folder):
    """A new recording, and the power cuts of it; raises when something is wrong."""
    folder = Path(folder)
    recorded = recording.make(world, folder / "recording", filesystem, seed, acts)
    tried, wrong = try_recording(world, recorded, count, folder / "points")
    if wrong:
        raise AssertionError(report(recorded, wrong))
    return tried
