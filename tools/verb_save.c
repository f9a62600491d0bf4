// save and get: a folder becomes a step, and back, without writing it through a mount.
//
// save writes into the session's own directory and commits it: asked of the process that has the store mounted, which needs
// no byte of it, or here.
#include "tools/verb.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/commit.h"
#include "core/save/replace.h"
#include "core/save/share.h"
#include "core/save/stage.h"
#include "core/step/folders.h"
#include "core/step/trash.h"
#include "tools/act.h"
#include "tools/arrival.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/tree.h"

#include <fcntl.h>
#include <ftw.h>
#include <search.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

static volatile int stopped; // by this signal

static void on_stop(int number)
{
	stopped = number;
}

// Until _end, a signal is not the end but a wish for it.
static void stop_begin(void)
{
	signal(SIGINT, on_stop);
	signal(SIGTERM, on_stop);
}

static int stop_end(int status)
{
	ckpt_progress_stop();
	return stopped && status ? 128 + stopped : status; // too late is too late
}

static int print(const char *step, uint64_t files, uint64_t bytes)
{
	if (ckpt_output.json)
		ckpt_output_json(ckpt_need(json_pack("{s:o, s:I, s:I}", "step", ckpt_json_text(step), "files",
						     (json_int_t)files, "bytes", (json_int_t)bytes)));
	return 0;
}

// --- save ---------------------------------------------------------------------------------------------------------------

struct save {
	const char *metadata_file;
	bool force; // over a step of the name
	char *metadata;
	const char *store, *name; // a path from the root of the mount
	const char *from;
	int from_fd;
	struct ckpt_tree tree;
	// Of what was committed.
	char session[CKPT_UUID_LEN + 1];
	json_t *reply; // of the mount; NULL: at rest
};

static int fill(struct save *v, int sessions_fd, const char *session)
{
	CLEANUP_FD int to = openat(sessions_fd, session, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int rc = to < 0 ? -errno : 0;

	if (!rc) {
		ckpt_progress_start("copying", ckpt_tree_bytes(v->from_fd), 1);
		rc = ckpt_tree_copy(&v->tree, v->from_fd, to);
		ckpt_progress_stop();
	}
	if (!rc || stopped)
		return rc;
	CLEANUP_FREE char *what =
		v->tree.blamed ? ckpt_text("%s/%s", v->from, v->tree.blamed) : ckpt_text("%s", v->from);

	if (rc == -EINVAL)
		return ckpt_fail(what, "a step has files, directories and symbolic links", "cannot be part of a step");
	return ckpt_fail_errno(what, rc == -EBUSY ? "it changed while it was copied: save again" : NULL, rc);
}

// Without its answer nobody would know which session to give up: a signal waits for it.
static int begin_mounted(struct save *v, json_t **ret_reply)
{
	const struct ckpt_verb_act begin = {.verb = "begin", .to = v->name, .force = v->force};
	sigset_t stops, before;
	int rc;

	sigemptyset(&stops);
	sigaddset(&stops, SIGINT);
	sigaddset(&stops, SIGTERM);
	sigprocmask(SIG_BLOCK, &stops, &before);
	rc = ckpt_act_ask(v->store, v->name, NULL, &begin, ret_reply);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static int save_mounted(struct save *v)
{
	const struct ckpt_verb_act commit = {
		.verb = "commit", .metadata = v->metadata, .to = v->force ? v->name : NULL};
	const struct ckpt_verb_act abort_it = {.verb = "abort"};
	CLEANUP_FREE char *sessions = ckpt_text("%s/sessions", v->store);
	CLEANUP_FD int sessions_fd = open(sessions, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	json_t *reply = NULL;
	const char *session;
	int rc = sessions_fd < 0 ? ckpt_fail_errno(sessions, NULL, -errno) : begin_mounted(v, &reply);

	if (rc)
		return rc;
	session = json_string_value(json_object_get(reply, "session"));
	rc = fill(v, sessions_fd, session ? session : "");
	if (!rc)
		rc = ckpt_act_ask(v->store, v->name, session, &commit, &v->reply);
	if (rc && session)
		(void)ckpt_act_ask(v->store, v->name, session, &abort_it, NULL);
	snprintf(v->session, sizeof(v->session), "%s", session ? session : "");
	json_decref(reply);
	return rc;
}

static int commit_here(struct save *v, struct ckpt_step *step, const char *folder_id, const char *name)
{
	const struct ckpt_commit how = {
		.folder_id = folder_id, .name = name, .event = "verb", .profile = "generic", .metadata = v->metadata};
	struct ckpt_step *replaced = NULL;
	int rc = v->force ? ckpt_replace_commit(step, &how, &replaced) : ckpt_commit(step, &how);

	ckpt_step_unref(replaced);

	return rc ? ckpt_fail_errno(v->name, "the file errors in the store says more", rc) : 0;
}

static int save_at_rest(struct save *v)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *step = NULL;
	struct ckpt_listing l;
	const char *name;
	int rc = ckpt_listing_open(v->store, CKPT_STORE_WRITE, &l);

	if (rc)
		return rc;
	rc = ckpt_folders_place(l.store, v->name, id, &name);
	if (!rc)
		rc = (v->force ? ckpt_replace_begin : ckpt_stage_begin)(l.store, id, name, 0755, geteuid(), getegid(),
									getpid(), &step);
	if (rc)
		rc = ckpt_fail_errno(v->name, ckpt_replace_hint(rc), rc);
	else
		rc = fill(v, l.store->sessions_fd, step->session);
	if (step)
		memcpy(v->session, step->session, sizeof(v->session));
	if (!rc)
		rc = commit_here(v, step, id, name);
	if (rc && step)
		(void)ckpt_stage_abort(step, false);
	ckpt_trash_drain(*ckpt_trash_of(l.store)); // what was given up, or temporary steps that are over
	ckpt_step_unref(step);
	ckpt_listing_close(&l);
	return rc;
}

static int save(struct save *v)
{
	int rc;

	v->from_fd = open(v->from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (v->from_fd < 0)
		return ckpt_fail_errno(v->from, NULL, -errno);
	rc = v->metadata_file ? ckpt_act_metadata(v->metadata_file, &v->metadata) : 0;
	if (!rc) {
		stop_begin();
		rc = save_mounted(v);
		if (rc == -ENOENT)
			rc = save_at_rest(v);
		rc = stop_end(rc);
		signal(SIGINT, SIG_DFL); // it is a step by now
		signal(SIGTERM, SIG_DFL);
		if (!rc)
			rc = ckpt_arrival_await(v->store, v->name, v->session, v->reply);
		json_decref(v->reply);
	}
	close(v->from_fd);
	if (!rc)
		print(v->name, v->tree.files, v->tree.bytes);
	free(v->tree.blamed);
	free(v->metadata);
	return rc;
}

static int save_option(int key, char *arg, void *input)
{
	struct save *v = input;

	if (key == 'f')
		v->force = true;
	else
		v->metadata_file = arg;
	return 0;
}

int ckpt_verb_save(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"metadata", 'm', "FILE", 0, "JSON of the step, as a marker may hold it; - is stdin", 0},
		{"force", 'f', NULL, 0, "replace a step of this name; it goes to the trash in the same act", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] DIR [NAME]",
		.doc = "Copies a folder into the store, as a step, in one act. No mount is needed. The "
		       "bytes are shared where the disk can (reflink), else copied. NAME is by default the "
		       "name of the folder. It is an error if a step of this name exists; with --force that "
		       "step stays until the new one is complete, and then goes to the trash.\v"
		       "Examples:\n"
		       "  ckptfs save /data/run42 /scratch/checkpoint-1000\n"
		       "  ckptfs save --metadata meta.json /ckpt out final",
		.options = options,
		.option = save_option,
		.operands_min = 1,
		.operands_max = 3,
	};
	struct save v = {.tree = {.stop = &stopped, .progress = ckpt_progress_update}};
	struct ckpt_settings settings;
	CLEANUP_FREE char *from = NULL;
	CLEANUP_FREE char *name = NULL;
	struct ckpt_words words;
	struct ckpt_operand o;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &v, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	if (o.count == 1 || o.count == 2) {
		from = ckpt_path_absolute(words.at[words.count - o.count]); // as it was written: it is no STEP
		v.store = o.store;
		v.from = from;
		name = o.count == 2 ? ckpt_operand_new_name(&o, 1, words.at[words.count - 1])
				    : ckpt_text("%s", strrchr(from, '/') + 1);
		v.name = name;
		if (ckpt_store_settings(o.store, &settings))
			ckpt_settings_init(&settings); // what is wrong is said below
		v.tree.skip = settings.marker;
		rc = save(&v);
		ckpt_settings_done(&settings);
	} else {
		rc = ckpt_usage("save", "usage: ckptfs save [STORE] DIR [NAME]", "wants one folder");
	}
	ckpt_operand_done(&o);
	return rc;
}

// --- get ----------------------------------------------------------------------------------------------------------------

struct linked {
	uint64_t ino;
	char path[];
};

struct get {
	struct ckpt_step *step;
	struct ckpt_manifest *m;
	const char *word; // as the user called the step
	int to;           // the directory that is filled
	void *links;      // of tsearch(3)
	uint64_t files, bytes, total;
	uint64_t shown; // by the bar
};

static int by_ino(const void *a, const void *b)
{
	uint64_t x = ((const struct linked *)a)->ino, y = ((const struct linked *)b)->ino;

	return (x > y) - (x < y);
}

// 1: linked to its first name.
static int link_again(struct get *g, const struct ckpt_entry *e, const char *path)
{
	struct linked *l = ckpt_need(malloc(sizeof(*l) + strlen(path) + 1));
	struct linked **found;

	l->ino = e->ino;
	strcpy(l->path, path);
	found = ckpt_need(tsearch(l, &g->links, by_ino));
	if (*found == l)
		return 0;
	free(l);
	return linkat(g->to, (*found)->path, g->to, path, 0) ? -errno : 1;
}

// Of a file in packs: a piece of it is there.
static bool got_piece(void *arg, uint64_t bytes)
{
	struct get *g = arg;

	g->shown += bytes;
	ckpt_progress_update(g->shown);
	return !stopped;
}

static int get_file(struct get *g, const struct ckpt_entry *e, const char *path)
{
	const struct ckpt_share_progress progress = {.go_on = got_piece, .arg = g};
	int rc = e->nlink > 1 ? link_again(g, e, path) : 0;

	if (rc)
		return MIN(rc, 0);
	rc = ckpt_share_copy_entry(g->step, g->m, e->index, g->to, path, &progress);
	g->files++;
	g->bytes += e->bytes;
	g->shown = g->bytes;
	ckpt_progress_update(g->shown);
	return rc;
}

static int get_symlink(struct get *g, const struct ckpt_entry *e, const char *path)
{
	struct timespec times[2] = {{0, UTIME_OMIT}, {e->mtime_s, e->mtime_ns}};
	int rc = ckpt_sys.symlink(e->target, g->to, path);

	if (!rc && geteuid() == 0 && fchownat(g->to, path, e->uid, e->gid, AT_SYMLINK_NOFOLLOW))
		rc = -errno;
	return rc ? rc : utimensat(g->to, path, times, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static int set_dir(struct get *g, const struct ckpt_entry *e, const char *path)
{
	struct timespec times[2] = {{0, UTIME_OMIT}, {e->mtime_s, e->mtime_ns}};
	CLEANUP_FD int fd = ckpt_sys.open(g->to, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0);
	const char *name;
	const void *value;
	size_t len;
	int rc = MIN(fd, 0);

	for (uint32_t i = 0; !rc && ckpt_manifest_xattr(g->m, e, i, &name, &value, &len); i++)
		if (strncmp(name, CKPT_OWN_XATTRS, strlen(CKPT_OWN_XATTRS)))
			rc = ckpt_sys.fsetxattr(fd, name, value, len, 0);
	if (!rc && geteuid() == 0 && fchown(fd, e->uid, e->gid))
		rc = -errno;
	if (!rc && fchmod(fd, e->mode))
		rc = -errno;
	return !rc && futimens(fd, times) ? -errno : rc;
}

// Parents come before their children; directories get their modes and times last, the deepest first.
static int get_entries(struct get *g)
{
	uint32_t count = ckpt_manifest_count(g->m);
	char path[PATH_MAX] = "";
	struct ckpt_entry e;
	int rc = 0;

	for (uint32_t i = 1; i < count && !rc; i++) {
		if (stopped)
			return -EINTR;
		ckpt_manifest_entry(g->m, i, &e);
		rc = MIN(ckpt_manifest_path(g->m, i, path, sizeof(path)), 0);
		if (!rc)
			rc = e.type == CKPT_ENTRY_DIR       ? ckpt_sys.mkdir(g->to, path, 0700)
			     : e.type == CKPT_ENTRY_SYMLINK ? get_symlink(g, &e, path)
							    : get_file(g, &e, path);
	}
	for (uint32_t i = count; i-- > 0 && !rc;) {
		ckpt_manifest_entry(g->m, i, &e);
		if (e.type == CKPT_ENTRY_DIR && (rc = MIN(ckpt_manifest_path(g->m, i, path, sizeof(path)), 0)) == 0)
			rc = set_dir(g, &e, path);
	}
	if (rc && !stopped)
		rc = ckpt_fail(g->word, rc == -EIO ? "`ckptfs verify` says what is damaged" : NULL, "%s: %s", path,
			       strerror(-rc));
	return rc;
}

static int remove_one(const char *path, const struct stat *st __attribute__((unused)), int type,
		      struct FTW *ftw __attribute__((unused)))
{
	return (type == FTW_DP ? rmdir : unlink)(path);
}

// Under another name beside it until it is whole, and durable.
static int get_into(struct get *g, const char *dir)
{
	CLEANUP_FREE char *partial = ckpt_text("%s.ckptfs-%d", dir, (int)getpid());
	CLEANUP_FD int above = -1;
	int rc = mkdir(partial, 0700) ? ckpt_fail_errno(partial, NULL, -errno) : 0;

	if (rc)
		return rc;
	g->to = open(partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	rc = g->to < 0 ? ckpt_fail_errno(partial, NULL, -errno) : get_entries(g);
	above = rc ? -1 : openat(g->to, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!rc && (above < 0 || syncfs(g->to)))
		rc = ckpt_fail_errno(partial, NULL, -errno);
	if (g->to >= 0)
		close(g->to);
	if (!rc && rename(partial, dir))
		rc = ckpt_fail_errno(dir, "give a folder that is absent or empty", -errno);
	if (!rc && fsync(above))
		rc = ckpt_fail_errno(dir, "it was copied, but may be lost in a power cut", -errno);
	if (rc)
		nftw(partial, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	return rc;
}

static int get(struct ckpt_step *step, struct ckpt_manifest *m, const char *word, const char *dir)
{
	struct get g = {.step = step, .m = m, .word = word};
	int rc;

	stop_begin();
	ckpt_manifest_totals(g.m, &g.files, &g.total);
	g.files = 0;
	ckpt_progress_start("copying", g.total, 1);
	rc = stop_end(get_into(&g, dir));
	tdestroy(g.links, free);
	return rc ? rc : print(word, g.files, g.bytes);
}

int ckpt_verb_get(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP DIR",
		.doc = "Copies a step, or a version of one, into a folder that is absent or empty: all of it, or "
		       "nothing. The bytes are shared where the disk can (reflink).\v"
		       "Examples:\n"
		       "  ckptfs get /data/run42 latest /scratch/restored\n"
		       "  ckptfs get /ckpt 1000@-1 before-the-last-edit\n"
		       "  ckptfs get /ckpt trash/1000 saved-from-the-trash",
		.operands_min = 2,
		.operands_max = 3,
	};
	CLEANUP_FREE char *dir = NULL, *path = NULL;
	struct ckpt_words words;
	struct ckpt_operand o;
	struct ckpt_listing l;
	struct ckpt_manifest *m;
	struct ckpt_step *step;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	dir = ckpt_path_absolute(words.at[words.count - 1]); // as it was written: it is no STEP
	rc = o.count == 2 ? ckpt_listing_open(o.store, CKPT_STORE_READ, &l)
			  : ckpt_usage("get", "usage: ckptfs get [STORE] STEP DIR", "wants one step and a folder");
	if (!rc) {
		rc = ckpt_listing_files(&l, &o, o.steps[0], &step, &m, &path);
		if (!rc) {
			rc = *path ? ckpt_usage(o.steps[0], "name the step alone; `ckptfs cat` prints single files",
						"a file in a step")
				   : get(step, m, o.steps[0], dir);
			ckpt_manifest_unref(m);
			ckpt_step_unref(step);
		}
		ckpt_listing_close(&l);
	}
	ckpt_operand_done(&o);
	return rc;
}
