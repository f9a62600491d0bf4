"""What is installed: the package and its content, the man pages, completion."""

import os
import re
import shutil
import subprocess

import pytest

from support.fixtures import SOURCE
from support.mounting import mounts_below

pytestmark = pytest.mark.timeout(120)

FILES = {
    "usr/bin/ckptfs", "usr/sbin/mount.fuse.ckptfs", "usr/lib/systemd/system/ckptfs@.service", "usr/share/bash-completion/completions/ckptfs",
    "usr/share/man/man1/ckptfs.1", "usr/share/man/man5/ckptfs-format.5", "usr/share/man/man5/ckptfs-policy.5",
    "usr/share/man/man7/ckptfs.7", "usr/share/man/man7/ckptfs-remote.7", "usr/share/man/man7/ckptfs-steps.7", "usr/share/man/man8/mount.fuse.ckptfs.8",
    "usr/share/doc/ckptfs/README.md", "usr/share/doc/ckptfs/LICENSE", "usr/share/doc/ckptfs/copyright",
    "usr/include/ckptfs.h", "usr/include/ckptfs_convert.h", "usr/lib/libckptfs.so", "usr/lib/libckptfs.so.1", "usr/lib/libckptfs.so.1.0.0", "usr/lib/pkgconfig/ckptfs.pc", "usr/lib/cmake/ckptfs/ckptfs-config.cmake",
    "usr/lib/cmake/ckptfs/ckptfs-config-version.cmake",
    "usr/bin/ckptfs-cuda-bench", "usr/include/ckptfs_cuda.h", "usr/lib/libckptfs_cuda.so", "usr/lib/libckptfs_cuda.so.1", "usr/lib/libckptfs_cuda.so.1.0.0",
    "usr/lib/pkgconfig/ckptfs-cuda.pc"}


def run(*command, **kwargs):
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, timeout=100, **kwargs).stdout


@pytest.fixture(scope="module")
def files(ckptfs):
    """FILES, and the one whose name depends on the build."""
    kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(\w+)$", (ckptfs.path.parent / "CMakeCache.txt").read_text(), re.M)[1]
    return FILES | {f"usr/lib/cmake/ckptfs/ckptfs-config-{kind.lower()}.cmake"}


@pytest.fixture(scope="module")
def package(ckptfs, tmp_path_factory):
    """The Debian package of the build under test, made by somebody with a narrow umask."""
    folder = tmp_path_factory.mktemp("package")
    run("cpack", "-G", "DEB", "--config", ckptfs.path.parent / "CPackConfig.cmake", "-B", folder, umask=0o077)
    made = list(folder.glob("ckptfs_*.deb"))
    assert len(made) == 1
    return made[0]


@pytest.fixture(scope="module")
def root(package, tmp_path_factory):
    """Where the package is unpacked."""
    folder = tmp_path_factory.mktemp("root")
    run("dpkg-deb", "-x", package, folder)
    return folder


# --- The package ------------------------------------------------------------------------------------------------------


def test_package_has_each_file_in_its_place_for_everybody_to_read(package, files):
    rows = [line.split(None, 5) for line in run("dpkg-deb", "-c", package).splitlines()]
    found = {row[5].split(" -> ")[0].removeprefix("./"): row for row in rows if not row[0].startswith("d")}
    assert found.keys() == files
    assert {row[0] for row in rows} == {"drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--", "lrwxrwxrwx"}
    assert {row[1] for row in rows} == {"root/root"}
    assert [name for name, row in found.items() if row[0] == "-rwxr-xr-x"] == ["usr/bin/ckptfs", "usr/bin/ckptfs-cuda-bench"]


def test_package_says_what_it_is_and_needs(package, ckptfs):
    fields = dict(line.split(": ", 1) for line in run("dpkg-deb", "-f", package).splitlines() if re.match(r"\w", line))
    assert fields["Package"] == "ckptfs" and fields["Maintainer"] == "ckptfs developers" and fields["Section"] == "utils"
    assert fields["Version"] == ckptfs("--version").stdout.split()[1]
    assert fields["Architecture"] == run("dpkg", "--print-architecture").strip()
    needs = set(re.findall(r"(?:^|, )([a-z0-9.+-]+)", fields["Depends"]))
    assert {"libc6", "liblmdb0", "libnuma1"} < needs and any(n.startswith("libjansson") for n in needs), fields["Depends"]
    assert not any(n.startswith("libfuse") for n in needs), "libfuse is our own, inside"
    assert "fuse3" in fields["Recommends"]
    assert run("dpkg-deb", "-I", package, "shlibs").splitlines() == [f"{name} 1 ckptfs (>= {fields['Version']})" for name in ("libckptfs", "libckptfs_cuda")]
    assert "ldconfig" in run("dpkg-deb", "-I", package, "postinst"), "the loader finds the library at once"


def test_unpacked_program_runs_and_mounts_by_the_name_that_mount8_calls(root, ckptfs, scratch, world, store):
    program, helper, point = root / "usr/bin/ckptfs", root / "usr/sbin/mount.fuse.ckptfs", scratch / "mnt"
    assert run(program, "--version") == ckptfs("--version").stdout
    assert helper.resolve() == program
    point.mkdir()
    world.callback(lambda: subprocess.run(["umount", "-l", point], check=False, capture_output=True))
    run(helper, store, point, "-o", "rw")
    (point / "1").mkdir()
    (point / "1/f").write_text("x")
    (point / "1/.finalize").touch()
    assert run(program, "ls", point) == "1\n"
    run(program, "umount", point)
    assert mounts_below(point) == []


def test_cmake_installs_the_same_files_elsewhere(ckptfs, files, scratch):
    run("cmake", "--install", ckptfs.path.parent, "--prefix", scratch / "usr")
    assert {str(p.relative_to(scratch)) for p in scratch.rglob("*") if not p.is_dir()} == files
    assert (scratch / "usr/sbin/mount.fuse.ckptfs").resolve() == scratch / "usr/bin/ckptfs"


# --- The man pages ----------------------------------------------------------------------------------------------------


def rendered(page, width=80):
    """A page as man(1) shows it. It may have no warnings."""
    environment = dict(os.environ, MANWIDTH=str(width), LC_ALL="C.UTF-8", MANROFFOPT="-ww")
    done = subprocess.run(["man", "--warnings", "-l", page], check=True, capture_output=True, text=True, timeout=100, env=environment)
    assert done.stderr == ""
    return done.stdout


def squeezed(text):
    """Without what depends on where lines are broken."""
    return re.sub(r"\s+", "", text.replace("‐\n", ""))


@pytest.mark.parametrize("page", sorted(f for f in FILES if "/man/" in f))
@pytest.mark.parametrize("width", [80, 132])
def test_man_page_renders_without_warnings(root, page, width):
    text = rendered(root / page, width)
    assert "NAME" in text and "DESCRIPTION" in text
    assert not re.search(r"@[\w.]+@", text), "something was not filled in"


def test_man_page_has_every_verb_and_option_of_the_program(root, ckptfs):
    page = squeezed(rendered(root / "usr/share/man/man1/ckptfs.1"))
    verbs = re.findall(r"^  ([\w-]+)  +\S", ckptfs("--help").stdout, re.M)
    assert len(verbs) > 10
    for verb in verbs:
        text = ckptfs(verb, "--help").stdout
        operands = re.search(r"\[--help\]((?: .*|\n +.*)*)", text)[1]
        assert squeezed(f"ckptfs {verb} [OPTION...]{operands}") in page
        options = re.findall(r"^ +(?:-\w, )?--[\w-]+(?:=\S+)?(?:  .*)?$|^  -\w  .*", text, re.M)  # and how what they do begins
        assert len(options) >= 3
        for option in options:
            assert squeezed(option) in page, f"{verb} {option}"
        for example in re.findall(rf"^  (ckptfs {verb} .*)", text, re.M):
            assert squeezed(example) in page


def test_man_pages_and_help_have_every_mount_option(root, ckptfs):
    table = re.findall(r'^\t\{"(\w+)", +(\w+)', (SOURCE / "tools/mount_options.c").read_text(), re.M)
    table += re.findall(r'^\t\t\.name = "(\w+)",\n\t\t\.kind = (\w+)', (SOURCE / "core/step/settings.c").read_text(), re.M)
    here = [name for name, apply in table if apply != "NULL"]
    assert len(here) > 15 and {"ro", "marker", "steps_at", "log_level"} <= set(here)
    for text in (rendered(root / "usr/share/man/man1/ckptfs.1"), rendered(root / "usr/share/man/man8/mount.fuse.ckptfs.8"), ckptfs("mount", "--help").stdout,
                 run(root / "usr/sbin/mount.fuse.ckptfs", "--help")):
        shown = re.findall(r"^ +([a-z_]+)(?:=\S+(?: |$)|  |$)", text, re.M)
        assert [name for name in here if name not in shown] == []
        assert [name for name, apply in table if apply == "NULL" and name in shown] == [], "not in this version"


def test_format_page_has_all_of_the_format(root):
    page = squeezed(rendered(root / "usr/share/man/man5/ckptfs-format.5", width=400))
    source = (SOURCE / "core/FORMAT.md").read_text()
    cells = [cell for line in source.splitlines() for cell in (line.strip("|").split("|") if line.startswith("|") else [line])]
    plain = [squeezed(re.sub(r"^(#+|-|\d+\.) |\*\*|`", "", cell.strip())) for cell in cells if not re.fullmatch(r"-*", cell)]
    assert len(plain) > 300
    # The title has a lower-case letter now: a name and its purpose are one line.
    assert [line for line in plain[1:] if line not in page] == []


@pytest.mark.parametrize("page", ["ckptfs.7", "ckptfs-steps.7", "ckptfs-remote.7", "ckptfs-policy.5"])
def test_page_from_markdown_has_all_of_it(root, page):
    name, section = page.rsplit(".", 1)
    shown = squeezed(rendered(root / f"usr/share/man/man{section}/{page}", width=400))
    lines = (SOURCE / f"tools/man/{page}.md").read_text().splitlines()
    cells = [cell for line in lines[1:] for cell in (line.strip("|").split("|") if line.startswith("|") else [line])]
    plain = [squeezed(cell if cell.startswith("    ") else re.sub(r"^(#+|-|\d+\.) |\*\*|`", "", cell.strip())) for cell in cells if not re.fullmatch(r"-*", cell)]
    assert len(plain) > 50
    assert [line for line in plain if line not in shown] == []
    assert f"{name}-{squeezed(lines[0].split(': ', 1)[1])}" in shown


# What people read first: README.md and the pages. Their commands, options and links exist.
TEXTS = ["README.md", "tools/man/ckptfs.7.md", "tools/man/ckptfs-steps.7.md", "tools/man/ckptfs-remote.7.md", "tools/man/ckptfs-policy.5.md"]


def test_readme_is_short():
    assert len((SOURCE / "README.md").read_bytes()) <= 10 << 10


@pytest.mark.parametrize("text", ["README.md", "CONTRIBUTING.md", "tests/README.md", "tests/bench/README.md", "tests/frameworks/README.md"])
def test_links_lead_to_files(text):
    page = SOURCE / text
    missing = [link for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()) if not link.startswith("https:") and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("text", TEXTS)
def test_commands_and_settings_in_the_text_exist(ckptfs, text):
    page = (SOURCE / text).read_text()
    verbs = set(ckptfs("help", "--words").stdout.split())
    told = set(re.findall(r"(?:`|^    |\()ckptfs ([a-z][a-z-]+)", page, re.M))
    assert told and told <= verbs
    options = set(ckptfs("help", "--words", "mount").stdout.replace("=", "").split())
    assert {name for name in re.findall(r"-o ([a-z_]+)", page) if name not in options} == set()
    for line in re.findall(r"(?:`|^    |\()ckptfs ([a-z][a-z-]+ [^`\n]*)", page, re.M):
        verb = line.split()[0]
        words = ckptfs("help", "--words", verb).stdout.replace("=", "").split()
        assert {w.split("=")[0] for w in re.findall(r"(?<= )--[a-z-]+", line.split("#")[0])} <= set(words), line


# --- Completion -------------------------------------------------------------------------------------------------------


@pytest.fixture
def complete(root, ckptfs, scratch):
    """complete("ckptfs", "ls", "--s"): what bash would offer for the last word, in a folder with store/, mnt/ and file."""
    for name in ("store", "mnt"):
        (scratch / name).mkdir()
    (scratch / "file").touch()
    script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }\n'
              '[[ $(complete -p ckptfs) == *"-F _ckptfs ckptfs" ]] || exit 3\n'
              '_ckptfs "$1" "${@: -1}" "${@: -2:1}"; printf "%s\\n" "${COMPREPLY[@]}"')

    def offers(*words):
        environment = dict(os.environ, PATH=f"{ckptfs.path.parent}:{os.environ['PATH']}")
        return run(shutil.which("bash"), "--norc", "-c", script, "bash", root / "usr/share/bash-completion/completions/ckptfs", *words, cwd=scratch, env=environment).split()
    return offers


def test_completion_of_verbs(complete, ckptfs):
    assert complete("ckptfs", "") == re.findall(r"^  ([\w-]+)  +\S", ckptfs("--help").stdout, re.M) + ["--help", "--version"]
    assert complete("ckptfs", "um") == ["umount"]
    assert complete("ckptfs", "--v") == ["--version"]
    assert complete("ckptfs", "help", "verif") == ["verify"]


def test_completion_of_options_is_that_of_the_verb(complete):
    assert {"--sort=", "--staged", "-l", "--json", "--help"} <= set(complete("ckptfs", "ls", "-"))
    assert complete("ckptfs", "ls", "--so") == ["--sort="]
    assert complete("ckptfs", "umount", "--n") == ["--now"]
    assert complete("ckptfs", "umount", "--so") == []


def test_completion_of_mount_options_goes_on_behind_a_comma(complete):
    assert {"ro", "marker=", "allow_other"} <= set(complete("ckptfs", "mount", "-o", ""))
    assert complete("ckptfs", "mount", "-o", "ro,no_pass") == ["ro,no_passthrough"]
    assert complete("ckptfs", "mount", "-o", "umask=022,ro,mar") == ["umask=022,ro,marker="]


def test_completion_of_directories_where_only_they_will_do(complete):
    assert sorted(complete("ckptfs", "mount", "")) == ["mnt", "store"]
    assert complete("ckptfs", "umount", "m") == ["mnt"]
    assert complete("ckptfs", "verify", "s") == [], "readline's own: files and directories"
