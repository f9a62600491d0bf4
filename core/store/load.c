#include "core/store/load.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/remote/detach.h"
#include "core/remote/remote.h"
#include "core/save/draft.h"
#include "core/save/stage.h"
#include "core/step/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

// --- Steps ------------------------------------------------------------------------------------------------------------

struct said_list {
	struct ckpt_said *at; // by session
	size_t count;
};

static void list_done(struct said_list *l)
{
	free(l->at);
}

static void tell_salvaged(void *arg, const char *name, int error)
{
	struct ckpt_store *s = arg;

	if (error)
		ckpt_errlog_add(s->errlog, name, error, "look at its files: `ckptfs sessions`",
				"the log has lost it, and the copy of its record is damaged: its files are those of an "
				"unfinished save now");
	else
		ckpt_errlog_add(s->errlog, name, 0, "look at it: `ckptfs info`",
				"the log had lost it, or its last version: it is as the copy of its record says");
}

static void tell_damaged(struct ckpt_store *s, uint64_t damaged)
{
	char key[CKPT_LOG_KEY_MAX];

	ckpt_log_key(damaged, key);
	ckpt_errlog_add(s->errlog, key, -EBADMSG, "run `ckptfs doctor --repair` on the store",
			"an entry of the log is damaged: what it said is lost%s",
			s->writable ? "" : ", and the store is shown without it");
}

static int repair(struct ckpt_store *s)
{
	struct ckpt_record_copies copies = ckpt_store_copies(s);
	int rc = ckpt_record_copies_salvage(&copies, tell_salvaged, s);

	return rc ? rc : ckpt_journal_snapshot(s->journal, true);
}

static int settle_copies(struct ckpt_store *s)
{
	struct ckpt_record_copies copies = ckpt_store_copies(s);
	unsigned lost;
	int rc = ckpt_record_copies_settle(&copies, &lost);

	if (lost)
		ckpt_errlog_add(s->errlog, "log", -EUCLEAN, "run `ckptfs doctor --repair` on the store",
				"the log has lost entries: the records of %u steps are there that it does not know",
				lost);
	return lost ? -EUCLEAN : rc;
}

// Stores of before have no id of their node: it is theirs.
static const char *node_of(const struct ckpt_store *s, const json_t *identity)
{
	const char *node = json_string_value(json_object_get(identity, "node"));

	return node && ckpt_uuid_check(node) ? node : s->id;
}

static int open_journal(struct ckpt_store *s, const json_t *identity, bool repairs)
{
	enum ckpt_journal_mode mode = repairs       ? CKPT_JOURNAL_REPAIR
				      : s->writable ? CKPT_JOURNAL_WRITE
						    : CKPT_JOURNAL_READ;
	uint64_t damaged;
	int rc = ckpt_journal_open(s->objects, s->id, node_of(s, identity), mode, &s->journal, &damaged);

	if (damaged)
		tell_damaged(s, damaged);
	if (!rc && repairs)
		rc = repair(s);
	if (!rc && s->writable)
		rc = settle_copies(s);
	return damaged && rc == -EBADMSG ? -EUCLEAN : rc;
}

int ckpt_load_steps(struct ckpt_store *s, const json_t *identity, bool repairs)
{
	CLEANUP(list_done) struct said_list l = {0};
	int rc = open_journal(s, identity, repairs);

	if (!rc && s->writable && !repairs)
		rc = *ckpt_remote_of(s) ? ckpt_remote_catch_up(*ckpt_remote_of(s)) : ckpt_detach_end(s);
	if (!rc)
		rc = ckpt_journal_list(s->journal, &l.at, &l.count);
	for (size_t i = 0; i < l.count && !rc; i++)
		rc = ckpt_step_enter(s, &l.at[i]);
	return rc;
}

// --- Sessions ---------------------------------------------------------------------------------------------------------

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int load_session(struct ckpt_store *s, const char *name, char **named, size_t named_count)
{
	int rc;

	if (!ckpt_uuid_check(name) || (named_count && bsearch(&name, named, named_count, sizeof(*named), by_text)))
		return 0;
	rc = ckpt_draft_is_empty(s, name);
	if (rc > 0)
		return 0;
	if (rc != -ENOMEM)
		rc = ckpt_stage_load_left(s, name);
	return rc == -ENOMEM ? rc : 0;
}

int ckpt_load_sessions(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	CLEANUP_FREE char **named = NULL;
	size_t count;
	struct dirent *d;
	DIR *dir;
	int fd, rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED | 1u << CKPT_STEP_DELETED, &steps, &count);

	if (rc)
		return rc;
	named = calloc(count + 1, sizeof(*named));
	fd = ckpt_sys.open(s->sessions_fd, ".", O_RDONLY | O_DIRECTORY, 0);
	dir = fd < 0 ? NULL : fdopendir(fd);
	rc = !named ? -ENOMEM : fd < 0 ? fd : !dir ? -ENOMEM : 0;
	if (!rc) {
		for (size_t i = 0; i < count; i++)
			named[i] = steps[i]->session;
		qsort(named, count, sizeof(*named), by_text);
		while (!rc && !(rc = ckpt_sys.readdir(dir, &d)) && d)
			rc = load_session(s, d->d_name, named, count);
	}
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	ckpt_step_list_free(steps, count);
	return rc;
}
