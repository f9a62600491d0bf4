#include "core/store/open.h"
#include "tests/support/seen.h"
#include "tests/support/staged.h"

#include "backends/spare.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

// --- What there is, as text ----------------------------------------------------------------------------------------------------

static void look_at_tree(FILE *out, int dirfd, const char *path, int depth)
{
	struct dirent **names;
	int count = scandirat(dirfd, path, &names, NULL, alphasort);

	for (int i = 0; i < count; i++) {
		char below[PATH_MAX];
		struct stat st;

		snprintf(below, sizeof(below), "%.2000s/%s", path, names[i]->d_name);
		if (names[i]->d_name[0] != '.' && !fstatat(dirfd, below, &st, AT_SYMLINK_NOFOLLOW)) {
			fprintf(out, "  %*s%s %o\n", depth, "", names[i]->d_name, st.st_mode);
			if (S_ISDIR(st.st_mode))
				look_at_tree(out, dirfd, below, depth + 1);
		}
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}

static int names_in(int dirfd, const char *path)
{
	int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	for (struct dirent *e; dir && (e = readdir(dir));)
		count += !ckpt_spare_is(e->d_name); // a fault keeps some from being made
	if (dir)
		closedir(dir);
	return count;
}

static void look_at_files(FILE *out, struct ckpt_step *step)
{
	struct ckpt_manifest *m;

	if (ckpt_step_manifest(step, &m)) {
		ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_DELETED); // and expires
		return;
	}
	for (uint32_t i = 0; i < ckpt_manifest_count(m); i++) {
		char path[PATH_MAX], bytes[32] = "";
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		ck_ok(ckpt_manifest_path(m, i, path, sizeof(path)));
		if (e.type == CKPT_ENTRY_FILE && ckpt_staged_read(step, m, i, bytes, sizeof(bytes) - 1) < 0)
			bytes[0] = '\0';
		fprintf(out, "  %s %d %o %u %u %llu %s\n", path, e.type, e.mode, e.nlink, e.xattrs,
			e.type == CKPT_ENTRY_DIR ? 0 : (unsigned long long)e.bytes, bytes);
	}
	ckpt_manifest_unref(m);
}

static void look_at_step(FILE *out, struct ckpt_step *step)
{
	static const char *const states[] = {"", "staged", "committing", "committed", "deleted", "left", "gone"};
	enum ckpt_step_state state = ckpt_step_state(step);
	bool has_manifest = ckpt_step_has_manifest(state);
	struct ckpt_record r = {0};

	fprintf(out, "%s %s%s", states[state], *step->folder_id ? "*/" : "", step->name);
	if (has_manifest && !ckpt_step_record(step, step->version->is.version, &r)) {
		fprintf(out, " v%u by v%u %s %s%s%s\n", step->version->is.version, step->deleted_by, r.metadata,
			step->version->is.event, step->version->is.pinned ? " pinned" : "",
			step->version->is.temporary ? " temporary" : "");
		look_at_files(out, step);
		ckpt_record_done(&r);
	} else if (!has_manifest) {
		fprintf(out, " from v%u%s%s%s\n", ckpt_staging_of(step)->from_version,
			ckpt_staging_of(step)->is_file ? " file" : "",
			ckpt_staging_of(step)->add_only ? " add-only" : "",
			ckpt_staging_of(step)->from_plain ? " plain" : "");
		look_at_tree(out, step->store->sessions_fd, step->session, 0);
	} else {
		ck_assert_int_eq(state, CKPT_STEP_DELETED);
		fputc(0x0a, out);
	}
}

// Without what differs from trial to trial: times, sessions, ids of folders.
static char *look(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	char *text = NULL;
	size_t count, len;
	FILE *out = open_memstream(&text, &len);
	CLEANUP_FREE char *lines = ckpt_settings_lines(&s->settings);

	ck_ok(ckpt_step_list(s, NULL, ~0u, &steps, &count));
	for (size_t i = 0; i < count; i++)
		look_at_step(out, steps[i]);
	ckpt_step_list_free(steps, count);
	fprintf(out, "%d sessions, %d temporary\n", names_in(s->dirfd, "sessions"),
		MAX(names_in(s->dirfd, "tmp"), 3)); // it has "lock"
	look_at_tree(out, s->tree_fd, ".", 0);
	fputs(lines, out);
	fclose(out);
	return text;
}

static char *look_at_disk(const char *dir)
{
	struct ckpt_store *s;
	char *text;
	int rc = ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s);

	if (rc)
		return strdup(strerror(-rc));
	text = look(s);
	ckpt_store_close(s);
	return text;
}

// --- Seen ---------------------------------------------------------------------------------------------------------------

struct ckpt_seen ckpt_see(const struct ckpt_trial *t)
{
	struct ckpt_store *s = t->reader ? t->reader : t->s;

	return (struct ckpt_seen){s ? look(s) : strdup("closed"), look_at_disk(t->dir)};
}

void ckpt_seen_done(struct ckpt_seen *seen)
{
	free(seen->here);
	free(seen->disk);
}

// When the store is opened anew.
struct ckpt_seen ckpt_see_anew(const char *dir)
{
	struct ckpt_trial t = {.s = ckpt_save_open(dir), .draft.dirfd = -1};
	struct ckpt_seen seen;

	snprintf(t.dir, sizeof(t.dir), "%s", dir);
	ckpt_trial_settle(&t);
	seen = ckpt_see(&t);
	ckpt_trial_end(&t);
	return seen;
}

static void assert_same_text(const char *is, const char *want, const char *where, const char *when)
{
	size_t line = 0;

	for (size_t i = 0; is[i] && is[i] == want[i]; i++)
		if (is[i] == '\n')
			line = i + 1;
	ck_assert_msg(!strcmp(is, want), "%s: %s is\n%.1000s\nnot\n%.1000s", when, where, is + line, want + line);
}

void ckpt_seen_assert(const struct ckpt_seen *is, const struct ckpt_seen *want, const char *when)
{
	assert_same_text(is->here, want->here, "in memory", when);
	assert_same_text(is->disk, want->disk, "on disk", when);
}

int ckpt_open_descriptors(void)
{
	return names_in(AT_FDCWD, "/proc/self/fd");
}
