#include "tools/listing.h"

#include "core/base/util.h"
#include "core/find/find.h"
#include "core/remote/remote.h"
#include "core/save/delete.h"
#include "core/step/errlog.h"
#include "core/step/holder.h"
#include "core/step/older.h"
#include "core/store/open.h"
#include "tools/output.h"
#include "tools/rows.h"
#include "tools/units.h"

#include <stdio.h>

#define TRASH_PREFIX "trash/"

// --- Open -------------------------------------------------------------------------------------------------------------

static void explain_busy(const char *store, char **ret_why, char **ret_hint)
{
	struct ckpt_holder h = {0};
	CLEANUP_FREE char *where = NULL;
	char since[CKPT_TIME_MAX];

	if (ckpt_store_holder(store, &h)) {
		*ret_why = ckpt_text("another process used it a moment ago");
		*ret_hint = ckpt_text("try again");
		return;
	}
	if (!h.pid) { // a verb does not say who it is
		*ret_why = ckpt_text("another ckptfs command is at work on it");
		*ret_hint = ckpt_text("wait until that has ended");
		ckpt_holder_done(&h);
		return;
	}
	where = h.mountpoint ? ckpt_text("is mounted at %s", h.mountpoint) : ckpt_text("is in use");
	*ret_why =
		ckpt_text("%s by pid %d on host %s since %s", where, h.pid, h.host, ckpt_time_local(h.since_ns, since));
	*ret_hint = h.mountpoint ? ckpt_text("`ckptfs umount %s` first", h.mountpoint)
				 : ckpt_text("wait until that process has ended");
	ckpt_holder_done(&h);
}

void ckpt_listing_explain(const char *store, int error, char **ret_why, char **ret_hint)
{
	*ret_hint = NULL;
	switch (error) {
	case -EMEDIUMTYPE:
		*ret_why = ckpt_text("not a store");
		*ret_hint = ckpt_text("`ckptfs init %s` makes one of an empty directory", store);
		break;
	case -ENOTSUP:
		*ret_why = ckpt_text("made by a newer ckptfs: its format is unknown to this one, which knows up to %d",
				     CKPT_STORE_FORMAT);
		*ret_hint = ckpt_text("use a newer ckptfs");
		break;
	case -EPROTONOSUPPORT:
		*ret_why = ckpt_text("made by an older ckptfs, before stores had a log");
		*ret_hint = ckpt_text("copy its steps out with that ckptfs");
		break;
	case -EBADMSG:
		*ret_why = ckpt_text("store.json or a folder of the store is damaged");
		*ret_hint = ckpt_text("restore store.json from a backup; the steps are not touched by this");
		break;
	case -EUCLEAN:
		*ret_why = ckpt_text("its log is damaged");
		*ret_hint = ckpt_text("`ckptfs doctor %s` says which; `ckptfs doctor --repair %s` mends the log", store,
				      store);
		break;
	case -EBUSY:
		explain_busy(store, ret_why, ret_hint);
		break;
	case -ENOENT:
		*ret_why = ckpt_text("no such directory, or a folder of the store is missing");
		break;
	case -EACCES:
		*ret_why = ckpt_text("%s", strerror(EACCES));
		*ret_hint = ckpt_text("only its owner may look into a store; others see its mount (-o allow_other)");
		break;
	case -EREMOTE:
		*ret_why = ckpt_text("the index needs a local disk");
		*ret_hint = ckpt_text("`ckptfs mount -o work_dir=DIR` puts it on another, and works on the store");
		break;
	case -EXDEV:
		*ret_why = ckpt_text("another filesystem is mounted on a folder of the store");
		break;
	default:
		*ret_why = ckpt_text("%s", strerror(-error));
		if (ckpt_errno_hint(error))
			*ret_hint = ckpt_text("%s", ckpt_errno_hint(error));
	}
}

static int refused(const char *store, int error)
{
	CLEANUP_FREE char *why = NULL, *hint = NULL;

	ckpt_listing_explain(store, error, &why, &hint);
	return ckpt_fail(store, hint, "%s", why);
}

static char *written;

const char *ckpt_listing_written(void)
{
	return written;
}

static int open_listing(const char *store, enum ckpt_store_mode mode, const char *work_dir,
			struct ckpt_listing *ret_listing)
{
	struct ckpt_settings settings;
	struct ckpt_listing l = {0};
	int rc;

	ckpt_settings_init(&settings);
	settings.keep_trash = true;
	if (work_dir)
		settings.work_dir = ckpt_text("%s", work_dir);
	rc = ckpt_store_open(store, mode, &settings, &l.store);
	ckpt_settings_done(&settings);
	if (rc)
		return refused(store, rc);
	if (!written && mode == CKPT_STORE_WRITE && *ckpt_remote_of(l.store))
		written = ckpt_text("%s", l.store->path);
	if (ckpt_folders_read(l.store, &l.folders))
		ckpt_need(NULL);
	*ret_listing = l;
	return 0;
}

int ckpt_listing_open(const char *store, enum ckpt_store_mode mode, struct ckpt_listing *ret_listing)
{
	return open_listing(store, mode, NULL, ret_listing);
}

int ckpt_listing_open_beside(const char *store, struct ckpt_listing *ret_listing)
{
	return open_listing(store, CKPT_STORE_READ, "/dev/null", ret_listing);
}

void ckpt_listing_close(struct ckpt_listing *l)
{
	ckpt_folders_done(&l->folders);
	ckpt_store_close(l->store);
	*l = (struct ckpt_listing){0};
}

// --- Names ------------------------------------------------------------------------------------------------------------

char *ckpt_listing_name(const struct ckpt_listing *l, const char *folder_id, const char *name)
{
	return ckpt_need(ckpt_folders_name(&l->folders, folder_id, name));
}

bool ckpt_listing_is_trash(const char *word)
{
	return !strncmp(word, TRASH_PREFIX, strlen(TRASH_PREFIX));
}

int ckpt_listing_order(const char *word, enum ckpt_latest_by *ret_by)
{
	const char *nearest = ckpt_nearest(word, ckpt_latest_words);
	CLEANUP_FREE char *hint = nearest ? ckpt_text("did you mean %s?", nearest)
					  : ckpt_text("commit, step, timestamp, mtime or tracker");

	return ckpt_latest_by_word(word, ret_by) ? ckpt_usage(word, hint, "no such order") : 0;
}

struct ckpt_view ckpt_listing_view(const struct ckpt_listing *l, const struct ckpt_operand *o,
				   const struct ckpt_mounts *mounts)
{
	struct ckpt_view v = {.store = l->store, .folders = &l->folders, .mounts = mounts};

	if (o->mountpoint)
		v.first = ckpt_mounts_find(mounts, o->mountpoint, NULL);
	return v;
}

bool ckpt_listing_is_folder(const struct ckpt_listing *l, const char *path)
{
	char id[CKPT_FOLDER_ID_LEN + 1];

	return !ckpt_folders_id(&l->folders, path, strlen(path), id);
}

static struct ckpt_step *find_in_path(const struct ckpt_listing *l, const struct ckpt_operand *o, const char *path,
				      const char **ret_rest)
{
	struct ckpt_mounts mounts;
	struct ckpt_view v;
	struct ckpt_step *step;
	int rc = ckpt_mounts_read(&mounts);

	v = ckpt_listing_view(l, o, &mounts);
	if (rc != -ENOMEM)
		rc = ckpt_view_find(&v, path, &step, ret_rest);
	ckpt_mounts_done(&mounts);

	if (rc == -ENOMEM)
		ckpt_need(NULL);
	return rc ? NULL : step;
}

// The deleted step that `ls --trash` calls so, or of this session; *ret_rest points behind its name.
static struct ckpt_step *find_deleted(const struct ckpt_listing *l, const char *word, const char **ret_rest)
{
	struct ckpt_step **steps, *found = NULL;
	size_t count, longest = 0;

	if (ckpt_deleted_list(l->store, &steps, &count))
		ckpt_need(NULL);
	for (size_t i = 0; i < count; i++) {
		char label[CKPT_NAME_MAX + 1];
		CLEANUP_FREE char *name = NULL;
		size_t len;

		ckpt_deleted_label(steps, i, true, label, sizeof(label));
		name = ckpt_listing_name(l, steps[i]->folder_id, label);
		if (!strcmp(steps[i]->session, word)) {
			free(name);
			name = ckpt_text("%s", word);
		}
		len = strlen(name);
		if (len <= longest || strncmp(name, word, len) || (word[len] && word[len] != '/'))
			continue;
		longest = len;
		ckpt_step_unref(found);
		found = ckpt_step_ref(steps[i]);
		*ret_rest = word + len + strspn(word + len, "/");
	}
	ckpt_step_list_free(steps, count);
	return found;
}

// NAME@NUMBER or NAME@-NUMBER, at the end or before a path. False: no part of the word is that.
static bool split_version(const char *word, char **ret_name, int64_t *ret_number, const char **ret_rest)
{
	for (const char *at = strchr(word, '@'); at; at = strchr(at + 1, '@')) {
		const char *digits = at + 1 + (at[1] == '-');
		size_t len = strspn(digits, "0123456789");

		if (at == word || !len || len > 9 || (digits[len] && digits[len] != '/'))
			continue;
		*ret_number = strtoll(at + 1, NULL, 10);
		*ret_rest = digits + len + strspn(digits + len, "/");
		*ret_name = ckpt_text("%.*s", (int)(at - word), word);
		return true;
	}
	return false;
}

static bool has_version(const char *word)
{
	CLEANUP_FREE char *name = NULL;
	const char *rest;
	int64_t number;

	return split_version(word, &name, &number, &rest);
}

static int not_found(const struct ckpt_listing *l, const char *word)
{
	CLEANUP_FREE char *hint = NULL;
	json_t *rows, *row;
	bool staged = false;
	size_t i;
	int rc;

	if (ckpt_listing_is_trash(word))
		return ckpt_fail(word, "`ckptfs ls --trash` lists the trash", "no such step in the trash");
	rc = ckpt_rows_sessions(l, &rows);
	if (rc)
		return rc;
	json_array_foreach(rows, i, row)
	{
		const char *name = json_string_value(json_object_get(row, "name"));

		staged |= name && !strcmp(name, word);
	}
	json_decref(rows);
	if (staged)
		return ckpt_fail(word, "`ckptfs sessions` lists the staged ones", "staged, not committed");
	if (has_version(word))
		return ckpt_fail(word, "name the step without @; `ckptfs restore` makes a version the current one",
				 "is a version, where a whole step is wanted");
	hint = ckpt_text("`ckptfs ls %s` lists the steps", l->store->path);
	return ckpt_fail(word, hint, ckpt_find_back(word) >= 0 ? "the store has no such step yet" : "no such step");
}

struct ckpt_step *ckpt_listing_look(const struct ckpt_listing *l, const struct ckpt_operand *operand, const char *word,
				    char **ret_path)
{
	CLEANUP_FREE char *here = *operand->folder ? ckpt_text("%s/%s", operand->folder, word) : NULL;
	const char *rest;
	struct ckpt_step *step =
		ckpt_listing_is_trash(word) ? find_deleted(l, word + strlen(TRASH_PREFIX), &rest) : NULL;

	if (!step && here)
		step = find_in_path(l, operand, here, &rest);
	if (!step)
		step = find_in_path(l, operand, word, &rest);
	if (step)
		*ret_path = ckpt_text("%s", rest);
	return step;
}

int ckpt_listing_find(const struct ckpt_listing *l, const struct ckpt_operand *operand, const char *word,
		      struct ckpt_step **ret_step, char **ret_path)
{
	struct ckpt_step *step = ckpt_listing_look(l, operand, word, ret_path);

	if (!step)
		return not_found(l, word);
	*ret_step = step;
	return 0;
}

// --- Versions -----------------------------------------------------------------------------------------------------------

bool ckpt_listing_is_version(const struct ckpt_listing *l, const struct ckpt_operand *operand, const char *word)
{
	CLEANUP_FREE char *path = NULL;
	struct ckpt_step *step = has_version(word) ? ckpt_listing_look(l, operand, word, &path) : NULL;

	ckpt_step_unref(step);
	return !step && has_version(word);
}

static int no_version(const struct ckpt_listing *l, const char *word, const char *name, int error)
{
	CLEANUP_FREE char *hint =
		ckpt_text("`ckptfs info %s %s` lists the versions that can be opened", l->store->path, name);

	if (error == -ENOENT)
		return ckpt_fail(word, hint, "the step has no such version");
	if (error == -ESTALE)
		return ckpt_fail(word, hint, "the version has expired");
	return ckpt_fail(word, "`ckptfs verify` says what is damaged", "the version cannot be read: %s",
			 strerror(-error));
}

int ckpt_listing_version(const struct ckpt_listing *l, const struct ckpt_operand *operand, const char *word,
			 struct ckpt_at_version *ret_at)
{
	CLEANUP_FREE char *name = NULL, *path = NULL;
	struct ckpt_at_version at = {0};
	const char *rest = "";
	int64_t number = 0;
	int rc;

	if (!split_version(word, &name, &number, &rest))
		return ckpt_usage(word, "as in 1000@3, or 1000@-1 for the files before the last change",
				  "names no version of a step");
	rc = ckpt_listing_find(l, operand, name, &at.named, &path);
	if (rc)
		return rc;
	rc = *path ? ckpt_usage(word, "the version stands behind the name of the step, before the path",
				"a file has no versions of its own")
		   : ckpt_older_find(at.named, number, &at.step, &at.version);
	if (rc < 0)
		rc = no_version(l, word, name, rc);
	if (rc) {
		ckpt_step_unref(at.named);
		return rc;
	}
	at.path = ckpt_text("%s", rest);
	*ret_at = at;
	return 0;
}

void ckpt_at_version_done(struct ckpt_at_version *at)
{
	ckpt_step_unref(at->named);
	ckpt_step_unref(at->step);
	ckpt_version_unref(at->version);
	free(at->path);
}

static int read_files(const char *word, struct ckpt_step *step, const struct ckpt_version *v,
		      struct ckpt_manifest **ret_manifest)
{
	int rc = v ? ckpt_step_read_manifest(step, &v->is, ret_manifest) : ckpt_step_manifest(step, ret_manifest);

	return rc ? ckpt_fail(word, "`ckptfs verify` says what is damaged", "its manifest cannot be read: %s",
			      strerror(-rc))
		  : 0;
}

int ckpt_listing_files(const struct ckpt_listing *l, const struct ckpt_operand *operand, const char *word,
		       struct ckpt_step **ret_step, struct ckpt_manifest **ret_manifest, char **ret_path)
{
	struct ckpt_at_version at = {0};
	int rc;

	if (ckpt_listing_is_version(l, operand, word))
		rc = ckpt_listing_version(l, operand, word, &at);
	else
		rc = ckpt_listing_find(l, operand, word, &at.step, &at.path);
	if (rc)
		return rc;
	rc = read_files(word, at.step, at.version, ret_manifest);
	if (!rc) {
		*ret_step = TAKE_PTR(at.step);
		*ret_path = TAKE_PTR(at.path);
	}
	ckpt_at_version_done(&at);
	return rc;
}
