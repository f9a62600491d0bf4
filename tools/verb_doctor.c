// doctor: what this machine can do, and why not.
//
// Required checks decide the exit status; the others say what is slower or less than it could be.
#include "core/step/holder.h"
#include "core/store/open.h"
#include "tools/verb.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/mounts.h"
#include "fs/abilities.h"
#include "tools/doctor.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/remote_place.h"
#include "tools/rows.h"
#include "tools/units.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <time.h>

#define FILES_WANTED 65536u

void ckpt_doctor_tell(struct ckpt_doctor *d, const char *name, bool required, bool ok, char *detail, char *hint)
{
	json_t *check = json_pack("{s:s, s:b, s:b, s:o, s:o}", "name", name, "ok", (int)ok, "required", (int)required,
				  "detail", ckpt_json_text(detail), "hint", ckpt_json_text(ok ? NULL : hint));

	if (json_array_append_new(d->checks, ckpt_need(check)))
		ckpt_need(NULL);
	if (required && !ok)
		d->status = 1;
	free(detail);
	free(hint);
}

// --- The machine --------------------------------------------------------------------------------------------------------

static void check_kernel(struct ckpt_doctor *d)
{
	struct utsname u = {0};

	uname(&u);
	ckpt_doctor_tell(d, "kernel", false, ckpt_kernel_is_at_least(6, 9), ckpt_text("Linux %s", u.release),
			 ckpt_text("passthrough needs Linux 6.9"));
}

static void check_fuse(struct ckpt_doctor *d)
{
	struct ckpt_mount_abilities can;
	struct stat st;
	bool there = !stat("/dev/fuse", &st);

	ckpt_mount_abilities(&can);
	ckpt_doctor_tell(
		d, "fuse", true, can.device,
		can.device ? ckpt_text("/dev/fuse, libfuse %s", can.libfuse)
			   : ckpt_text(there ? "/dev/fuse cannot be opened" : "there is no /dev/fuse"),
		ckpt_text(there ? "anybody may open it where udev runs: chmod 666 /dev/fuse; in a container: --device "
				  "/dev/fuse"
				: "`modprobe fuse`; in a container: --device /dev/fuse"));
	ckpt_doctor_tell(
		d, "passthrough", false, can.passthrough,
		can.passthrough ? ckpt_text("reads and writes of files go to the disk by the kernel alone")
				: ckpt_text("%s", can.passthrough_why ? can.passthrough_why : "not offered"),
		ckpt_text(
			"without it data goes through the ckptfs process: correct, but slower; it needs Linux 6.9 and "
			"root"));
	ckpt_doctor_tell(d, "io_uring", false, can.io_uring,
			 can.io_uring ? ckpt_text("small requests take the faster way")
				      : ckpt_text("%s", can.io_uring_why ? can.io_uring_why : "not offered"),
			 ckpt_text("root: echo Y > /sys/module/fuse/parameters/enable_uring (Linux 6.14)"));
}

// Only users other than root need it, and it must be setuid root then.
static void check_fusermount(struct ckpt_doctor *d)
{
	CLEANUP_FREE char *path = ckpt_text("%s", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	char *rest = path, *dir, *found = NULL;
	bool suid = false;

	while (!found && (dir = strsep(&rest, ":"))) {
		char *candidate = ckpt_text("%s/fusermount3", dir);
		struct stat st;

		if (!access(candidate, X_OK) && !stat(candidate, &st)) {
			found = candidate;
			suid = st.st_mode & S_ISUID && st.st_uid == 0;
		} else {
			free(candidate);
		}
	}
	ckpt_doctor_tell(d, "fusermount3", geteuid() != 0, found && suid,
			 found ? ckpt_text("%s%s", found, suid ? "" : " is not setuid root") : ckpt_text("not found"),
			 ckpt_text("install fuse3: users other than root mount and unmount with it"));
	free(found);
}

static void check_limits(struct ckpt_doctor *d)
{
	struct rlimit files;
	char hard[24] = "unlimited";

	getrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_max != RLIM_INFINITY)
		snprintf(hard, sizeof(hard), "%llu", (unsigned long long)files.rlim_max);
	ckpt_doctor_tell(
		d, "limits", false, files.rlim_max >= FILES_WANTED,
		ckpt_text("open files: %llu, can be raised to %s", (unsigned long long)files.rlim_cur, hard),
		ckpt_text("raise the hard limit of open files to %u (limits.conf, LimitNOFILE=): each open file of a "
			  "mount needs one",
			  FILES_WANTED));
}

// A request of many small files is two wake-ups of an idle CPU. A virtual one that halts at once is slow to wake.
static void check_idle(struct ckpt_doctor *d)
{
	FILE *f = fopen("/sys/module/haltpoll/parameters/guest_halt_poll_ns", "re");
	unsigned ns = 0;

	if (!f)
		return;
	if (fscanf(f, "%u", &ns) == 1)
		ckpt_doctor_tell(
			d, "idle", false, ns > 0, ckpt_text("guest_halt_poll_ns is %u", ns),
			ckpt_text("many small files take half the time with root: echo 200000 > "
				  "/sys/module/haltpoll/parameters/guest_halt_poll_ns (the kernel's default)"));
	fclose(f);
}

static void check_clock(struct ckpt_doctor *d)
{
	struct timex t = {0};
	char now[CKPT_TIME_MAX];
	struct timespec ts;
	bool synced = adjtimex(&t) != TIME_ERROR && !(t.status & STA_UNSYNC);

	clock_gettime(CLOCK_REALTIME, &ts);
	ckpt_doctor_tell(d, "clock", false, ts.tv_sec > 1704067200, // 2024
			 ckpt_text("%s, %s", ckpt_time_local(ts.tv_sec * INT64_C(1000000000), now),
				   synced ? "kept by a time service" : "no time service keeps it"),
			 ckpt_text("set the clock: times of commits come from it"));
}

// What root may do everywhere but in containers; who is not root has none, and needs none.
static bool has_capability(int capability)
{
	FILE *f = geteuid() ? NULL : fopen("/proc/self/status", "re");
	unsigned long long have = ~0ull;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &have) == 1)
			break;
	if (f)
		fclose(f);
	return have >> capability & 1;
}

static void check_leases(struct ckpt_doctor *d)
{
	FILE *f = fopen("/proc/sys/fs/leases-enable", "re");
	int on = 0;

	if (f) {
		if (fscanf(f, "%d", &on) != 1)
			on = 0;
		fclose(f);
	}
	if (on && !has_capability(CAP_LEASE)) {
		ckpt_doctor_tell(
			d, "leases", false, false, ckpt_text("root without CAP_LEASE"),
			ckpt_text("in a container: --cap-add LEASE; without it no step with files of another user is "
				  "committed"));
		return;
	}
	ckpt_doctor_tell(
		d, "leases", true, on, ckpt_text("fs.leases-enable is %d", on),
		ckpt_text("root: sysctl fs.leases-enable=1; a commit finds out with them whether a file is still being "
			  "written"));
}

// --- A directory --------------------------------------------------------------------------------------------------------

static const struct {
	long magic;
	const char *name;
	bool far; // LMDB and leases cannot be relied on there
} filesystems[] = {
	{EXT4_SUPER_MAGIC, "ext4", false},
	{XFS_SUPER_MAGIC, "xfs", false},
	{BTRFS_SUPER_MAGIC, "btrfs", false},
	{TMPFS_MAGIC, "tmpfs", false},
	{OVERLAYFS_SUPER_MAGIC, "overlayfs", false},
	{F2FS_SUPER_MAGIC, "f2fs", false},
	{0x2fc12fc1, "zfs", false},
	{(long)0xca451a4e, "bcachefs", false},
	{NFS_SUPER_MAGIC, "nfs", true},
	{(long)SMB2_SUPER_MAGIC, "smb", true},
	{(long)CIFS_SUPER_MAGIC, "cifs", true},
	{CEPH_SUPER_MAGIC, "ceph", true},
	{V9FS_MAGIC, "9p", true},
	{FUSE_SUPER_MAGIC, "fuse", true},
	{0x0bd00bd0, "lustre", true},
	{0x47504653, "gpfs", true},
	{(long)AFS_FS_MAGIC, "afs", true},
	{0x19830326, "beegfs", true},
};

// Tries with nameless files, which leave nothing behind. -1: cannot be tried, no right to write there.
static void try_abilities(const char *dir, int *ret_reflink, int *ret_xattr)
{
	CLEANUP_FD int a = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	CLEANUP_FD int b = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	*ret_reflink = *ret_xattr = -1;
	if (a < 0 || b < 0)
		return;
	*ret_xattr = !fsetxattr(a, "user.ckptfs.test", "1", 1, 0);
	*ret_reflink = write(a, "x", 1) == 1 && !ioctl(b, FICLONE, a);
}

static const char *yes_no(int ability)
{
	return ability < 0 ? "not tried" : ability ? "yes" : "no";
}

static void check_filesystem(struct ckpt_doctor *d, const char *dir)
{
	struct statfs fs;
	const char *name = NULL;
	char free_bytes[CKPT_SIZE_MAX];
	int reflink, xattr;
	bool far = false;

	if (statfs(dir, &fs)) {
		ckpt_doctor_tell(d, "filesystem", true, false, ckpt_text("%s: %s", dir, strerror(errno)), NULL);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(filesystems); i++)
		if ((uint32_t)filesystems[i].magic == (uint32_t)fs.f_type) {
			name = filesystems[i].name;
			far = filesystems[i].far;
		}
	try_abilities(dir, &reflink, &xattr);
	ckpt_doctor_tell(
		d, "filesystem", true, !far && xattr != 0,
		ckpt_text("%s, reflinks %s, extended attributes %s, %s free", name ? name : "of an unknown kind",
			  yes_no(reflink), yes_no(xattr),
			  ckpt_size_text((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize, free_bytes)),
		ckpt_text(far ? "keep the store on a local disk: locks, leases and the index cannot be relied on there"
			      : "the store needs a filesystem with extended attributes: ext4, xfs, btrfs"));
}

// --- A store ------------------------------------------------------------------------------------------------------------

static void check_index(struct ckpt_doctor *d, const struct ckpt_store *s)
{
	CLEANUP_FREE char *path = ckpt_text("%s/index", s->path);
	struct ckpt_index_stat st = {0};
	struct ckpt_index *ix = NULL;
	char used[CKPT_SIZE_MAX];
	bool fresh;
	int rc;

	if (s->index) {
		rc = ckpt_index_stat(s->index, &st);
	} else {
		rc = ckpt_index_open(path, s->id, true, &ix, &fresh);
		ckpt_index_close(ix);
	}
	if (rc == -ENOENT)
		ckpt_doctor_tell(d, "index", true, true, ckpt_text("none yet: the next mount makes it"), NULL);
	else
		ckpt_doctor_tell(d, "index", true, !rc,
				 rc ? ckpt_text("%s: %s", path, rc == -EBADMSG ? "is damaged" : strerror(-rc))
				    : ckpt_text("%llu manifests, %llu packs, %s", (unsigned long long)st.manifests,
						(unsigned long long)st.packs, ckpt_size_text(st.bytes_used, used)),
				 ckpt_text("`ckptfs verify --repair-index %s` rebuilds it, and so does the next mount",
					   s->path));
}

// A step that is being saved is live; any other is named.
static void check_sessions(struct ckpt_doctor *d, const struct ckpt_listing *l)
{
	CLEANUP_FREE char *names = NULL;
	json_t *rows, *row;
	size_t i, unfinished = 0;

	if (ckpt_rows_sessions(l, &rows)) {
		ckpt_doctor_tell(d, "sessions", false, false,
				 ckpt_text("the process that has it mounted does not answer"),
				 ckpt_text("its log may say more"));
		return;
	}
	json_array_foreach(rows, i, row)
	{
		const char *name = json_string_value(json_object_get(row, "name"));
		const char *id = json_string_value(json_object_get(row, "id"));
		char *longer;

		if (!strcmp(json_string_value(json_object_get(row, "state")), "live"))
			continue;
		longer = ckpt_text("%s%s%s", unfinished ? names : "", unfinished ? ", " : "", name ? name : id);
		free(names);
		names = longer;
		unfinished++;
	}
	json_decref(rows);
	ckpt_doctor_tell(
		d, "sessions", false, !unfinished,
		unfinished ? ckpt_text("%zu steps are not complete: %s", unfinished, names)
			   : ckpt_text("no save was interrupted"),
		ckpt_text("`ckptfs sessions %s` lists them, `ckptfs commit` completes one, `ckptfs abort` drops it",
			  l->store->path));
}

static void check_log(struct ckpt_doctor *d, const struct ckpt_store *s)
{
	uint64_t damaged = ckpt_journal_damaged(s->journal), seq = ckpt_journal_position(s->journal).seq;
	char key[CKPT_LOG_KEY_MAX];

	ckpt_log_key(damaged, key);
	ckpt_doctor_tell(
		d, "log", true, !damaged,
		damaged ? ckpt_text("%s/%s is damaged, or does not follow the entry before it", s->path, key)
			: ckpt_text("%llu entries, each follows the one before it", (unsigned long long)seq),
		ckpt_text("unmount it, then `ckptfs doctor --repair %s` takes what it said from copies of the records",
			  s->path));
}

static void check_open_store(struct ckpt_doctor *d, const struct ckpt_listing *l)
{
	struct ckpt_store *s = l->store;
	struct ckpt_step **steps;
	size_t committed;

	if (ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &committed))
		ckpt_need(NULL);
	ckpt_step_list_free(steps, committed);
	ckpt_doctor_tell(d, "store", true, true,
			 ckpt_text("%s, format %d, %zu steps", s->path, CKPT_STORE_FORMAT, committed), NULL);
	check_log(d, s);
	check_index(d, s);
	check_sessions(d, l);
}

static void check_holder(struct ckpt_doctor *d, const char *store)
{
	struct ckpt_holder h = {0};
	char since[CKPT_TIME_MAX];
	int rc = ckpt_store_holder(store, &h);

	ckpt_doctor_tell(d, "mounted", false, true,
			 rc ? ckpt_text("no")
			    : ckpt_text("%s by pid %d on host %s since %s", h.mountpoint ? h.mountpoint : "in use",
					h.pid, h.host, ckpt_time_local(h.since_ns, since)),
			 NULL);
	ckpt_holder_done(&h);
}

static void check_store(struct ckpt_doctor *d, const char *path)
{
	struct ckpt_listing l = {0};
	char *why, *hint;
	int rc = ckpt_store_open(path, CKPT_STORE_READ, NULL, &l.store);

	check_filesystem(d, path);
	if (rc) {
		ckpt_listing_explain(path, rc, &why, &hint);
		ckpt_doctor_tell(d, "store", true, false, ckpt_text("%s: %s", path, why), hint);
		free(why);
		ckpt_doctor_tell(d, "index", true, true, ckpt_text("not looked at: the store cannot be opened"), NULL);
		return;
	}
	check_holder(d, path);
	if (ckpt_folders_read(l.store, &l.folders))
		ckpt_need(NULL);
	check_open_store(d, &l);
	ckpt_listing_close(&l);
}

// --- The verb -----------------------------------------------------------------------------------------------------------

static int print(struct ckpt_doctor *d)
{
	bool colour = ckpt_output_colour(STDOUT_FILENO);
	json_t *check;
	size_t i;

	if (ckpt_output.json) {
		ckpt_output_json(json_pack("{s:o}", "checks", d->checks));
		return d->status;
	}
	json_array_foreach(d->checks, i, check)
	{
		bool ok = json_is_true(json_object_get(check, "ok")),
		     required = json_is_true(json_object_get(check, "required"));
		const char *hint = json_string_value(json_object_get(check, "hint"));
		const char *word = ok ? "ok" : required ? "FAIL" : "WARN";
		const char *on = !colour ? "" : ok ? "\033[32m" : required ? "\033[31m" : "\033[33m";

		printf("%s%-6s%s %-13s %s\n", on, word, colour ? "\033[0m" : "",
		       json_string_value(json_object_get(check, "name")),
		       json_string_value(json_object_get(check, "detail")));
		if (hint)
			printf("%-20s hint: %s\n", "", hint);
	}
	json_decref(d->checks);
	return d->status;
}

// 0 and a store; 0 and *ret_dir, a directory that is none; or neither, when nothing is named or found.
static int find_subject(const struct ckpt_words *words, struct ckpt_operand *o, char **ret_dir)
{
	const char *word = words->at[0], *env = getenv("CKPTFS_STORE");
	CLEANUP_FREE char *path = ckpt_path_absolute(word ? word : ".");
	struct ckpt_mounts mounts = {0};
	struct stat st;
	bool mounted;

	ckpt_mounts_read(&mounts);
	mounted = ckpt_mounts_find(&mounts, path, NULL);
	ckpt_mounts_done(&mounts);
	if (word ? mounted || strstr(word, "://") || ckpt_store_probe(word) : mounted || (env && *env))
		return ckpt_operand_take(words, o);
	if (!word)
		return 0;
	if (stat(word, &st))
		return ckpt_fail_errno(word, NULL, errno);
	if (!S_ISDIR(st.st_mode))
		return ckpt_fail(word, NULL, "neither a store nor a directory");
	*ret_dir = TAKE_PTR(path);
	return 0;
}

static int repair(const char *store)
{
	struct ckpt_listing l;
	char key[CKPT_LOG_KEY_MAX];
	uint64_t damaged;
	int rc = ckpt_listing_open(store, CKPT_STORE_REPAIR, &l);

	if (rc)
		return rc;
	damaged = ckpt_journal_damaged(l.store->journal);
	ckpt_log_key(damaged, key);
	ckpt_listing_close(&l);
	if (damaged)
		ckpt_note(
			"%s was damaged; `.ckptfs/errors` names the steps that were taken from copies of their records",
			key);
	else
		ckpt_note("no entry of the log is damaged");
	return 0;
}

// --- A store in a bucket ------------------------------------------------------------------------------------------------

struct asked {
	bool repairs, policy;
};

// The options that the last mount of this work directory had; NULL: none.
static const char **kept_options(const json_t *remote)
{
	const json_t *kept = json_object_get(remote, "options"), *option;
	const char **options;
	size_t i;

	if (!json_array_size(kept))
		return NULL;
	options = ckpt_need(calloc(json_array_size(kept) + 1, sizeof(*options)));
	json_array_foreach(kept, i, option) options[i] = json_string_value(option);
	return options;
}

// rc: of ckpt_remote_known(). A mount makes a work directory only where there is none.
static void tell_no_store(struct ckpt_doctor *d, const char *url, int rc)
{
	char *why, *hint;

	if (rc == -ENOENT) {
		ckpt_doctor_tell(d, "index", true, true,
				 ckpt_text("this node has no work directory of the store: the first mount makes it"),
				 NULL);
		return;
	}
	ckpt_listing_explain(url, rc, &why, &hint);
	ckpt_doctor_tell(d, "store", true, false, ckpt_text("this node's work directory of %s: %s", url, why), hint);
	free(why);
	ckpt_doctor_tell(d, "index", true, true, ckpt_text("not looked at: the store cannot be opened"), NULL);
}

// This node's part, where there is one, and then the bucket.
static int check_remote(struct ckpt_doctor *d, const char *url, bool policy)
{
	struct ckpt_remote_at at = {.url = url};
	CLEANUP_FREE const char **kept = NULL;
	CLEANUP_FREE char *path = NULL;
	json_t *remote = NULL;
	int rc = ckpt_remote_at_options(&at);

	if (rc)
		return rc;
	rc = ckpt_remote_known(&at, &path, &remote);
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	if (!at.options)
		at.options = kept = kept_options(remote);
	if (policy) {
		rc = ckpt_doctor_policy(url, at.options);
	} else {
		if (path)
			check_store(d, path);
		else
			tell_no_store(d, url, rc);
		rc = ckpt_doctor_remote(d, url, at.options);
	}
	json_decref(remote);
	return rc;
}

static int on_option(int key, char *arg __attribute__((unused)), void *input)
{
	struct asked *a = input;

	*(key == 'r' ? &a->repairs : &a->policy) = true;
	return 0;
}

static void check_machine(struct ckpt_doctor *d)
{
	check_kernel(d);
	check_fuse(d);
	check_fusermount(d);
	check_limits(d);
	check_idle(d);
	check_clock(d);
	check_leases(d);
	ckpt_doctor_device(d);
}

static int doctor(struct ckpt_doctor *d, const struct ckpt_words *words, const struct asked *a)
{
	const char *word = words->at[0] ? words->at[0] : getenv("CKPTFS_STORE");
	CLEANUP_FREE char *dir = NULL;
	struct ckpt_operand o = {0};
	int rc;

	if (word && ckpt_is_remote_url(word) && !a->repairs) {
		if (!a->policy)
			check_machine(d);
		return check_remote(d, word, a->policy);
	}
	if (a->policy)
		return ckpt_usage("--policy", "ckptfs doctor --policy s3://BUCKET/PREFIX",
				  "is of a STORE that is a URL");
	rc = find_subject(words, &o, &dir);
	if (rc)
		return rc;
	if (a->repairs) {
		rc = o.store ? repair(o.store)
			     : ckpt_usage("--repair", "ckptfs doctor --repair STORE", "needs a store");
		ckpt_operand_done(&o);
		return rc;
	}
	check_machine(d);
	if (dir)
		check_filesystem(d, dir);
	if (o.store)
		check_store(d, o.store);
	else
		ckpt_doctor_tell(d, "index", true, true, ckpt_text("no store is named: nothing to look at"), NULL);
	ckpt_operand_done(&o);
	return 0;
}

int ckpt_verb_doctor(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"repair", 'r', NULL, 0,
		 "make a store writable again whose log is damaged: what its entries said is taken from copies of the "
		 "records; the store must not be mounted",
		 0},
		{"policy", 'p', NULL, 0,
		 "s3://: print the rights that a reader and a writer need, and lifecycle rules for the bucket, as "
		 "JSON; "
		 "nobody is asked",
		 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE|DIR]",
		.doc = "Says what this machine can do, and what is missing and why. Exit status 1: "
		       "something that ckptfs needs is missing.\v"
		       "With s3://BUCKET/PREFIX it asks the server, too: whether it answers and keeps what "
		       "ckptfs needs of it, what the credentials may do, and what the bucket is set to. Each "
		       "right is tried with small objects below PREFIX/probe/, which are removed again. A "
		       "right that is refused is a warning where a read-only mount can do without.\n"
		       "\n"
		       "Examples:\n"
		       "  ckptfs doctor\n"
		       "  ckptfs doctor --json /data/run42\n"
		       "  ckptfs doctor --repair /data/run42\n"
		       "  ckptfs doctor s3://bucket/run42\n"
		       "  ckptfs doctor --policy s3://bucket/run42 | jq .writer",
		.options = options,
		.option = on_option,
		.operands_max = 1,
	};
	struct ckpt_doctor d = {.checks = ckpt_need(json_array())};
	struct asked asked = {0};
	struct ckpt_words words;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &asked, &words);
	rc = doctor(&d, &words, &asked);
	if (!rc && json_array_size(d.checks))
		return print(&d);
	json_decref(d.checks);
	return rc;
}
