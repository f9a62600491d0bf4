// Hostile stores: the first byte chooses what of a small store is replaced, the second how it is opened, the rest is what
// stands there instead. Then it is opened, listed, and all that is listed is read. It may be refused, with an error; or the
// step that was not touched is as it was, and what else is shown can be walked without harm.

#include "core/step/holder.h"
#include "tests/fuzz/replay.h"
#include "tests/fuzz/temp.h"
#include "tests/support/formats.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/commit.h"
#include "core/save/delete.h"
#include "core/save/stage.h"
#include "core/step/errlog.h"
#include "core/step/store.h"
#include "core/store/open.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define KEPT "kept_77"
#define TOUCHED "1000"
#define LEFT "5"
#define KEEPER "tree/keeper" // outside of all that may be removed

static char dir[PATH_MAX];
static char left_session[64]; // sessions/UUID of what was never completed

static const char *path_of(const char *below)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s/%s", PATH_MAX - 1024, dir, below);
	return path;
}

// --- The store --------------------------------------------------------------------------------------------------------

static void write_file(const char *below, const void *data, size_t len)
{
	int fd = open(path_of(below), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0600);

	if (fd < 0)
		return; // a name that the disk does not take
	fuzz_assert(write(fd, data, len) == (ssize_t)len);
	close(fd);
}

static struct ckpt_step *begin(struct ckpt_store *s, const char *name)
{
	struct ckpt_step *step;
	int fd;

	fuzz_assert(!ckpt_stage_begin(s, "", name, 0755, getuid(), getgid(), getpid(), &step));
	fd = ckpt_sys.open(step->dirfd, "model", O_RDWR | O_CREAT | O_EXCL, 0644);
	fuzz_assert(fd >= 0 && write(fd, name, strlen(name)) == (ssize_t)strlen(name));
	close(fd);
	return step;
}

static void make_store(void)
{
	struct ckpt_commit how = {.event = "marker", .profile = "generic", .writers_ns = 1000000};
	const char *names[] = {KEPT, TOUCHED, LEFT};
	struct ckpt_store *s;

	fuzz_assert(!ckpt_store_init(dir) && !ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s));
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct ckpt_step *step = begin(s, names[i]);

		if (i < 2)
			fuzz_assert(!ckpt_commit(step, &how));
		else
			snprintf(left_session, sizeof(left_session), "sessions/%s", step->session);
		ckpt_step_unref(step);
	}
	ckpt_store_close(s);
	write_file(KEEPER, "x", 1);
}

// --- What is replaced -------------------------------------------------------------------------------------------------

static void put_record(const char *below, const uint8_t *data, size_t len, bool sealed)
{
	CLEANUP_FREE uint8_t *copy = malloc(len + 1);

	fuzz_assert(copy);
	memcpy(copy, data, len);
	if (sealed)
		ckpt_sample_reseal(copy, len);
	write_file(below, copy, len);
}

// The first line is a name below the folder, what follows is in the file of it: or, by kind, it is a directory, a link
// to what must stay, or a pipe.
static void put_named(const char *folder, const uint8_t *data, size_t len, unsigned kind)
{
	const uint8_t *end = memchr(data, '\n', len);
	size_t name_len = end ? (size_t)(end - data) : len;
	char below[600];

	if (name_len > 255 || !name_len || memchr(data, 0, name_len))
		return;
	snprintf(below, sizeof(below), "%s/%.*s", folder, (int)name_len, (const char *)data);
	if (strstr(below, "/../") || strchr(below + strlen(folder) + 1, '.') == below + strlen(folder) + 1)
		return; // that is the disk's business
	for (char *slash = below + strlen(folder) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = '\0';
		(void)mkdir(path_of(below), 0700);
	}
	switch (kind % 4) {
	case 0:
		write_file(below, end ? end + 1 : data, end ? len - name_len - 1 : 0);
		break;
	case 1:
		(void)mkdir(path_of(below), 0700);
		break;
	case 2:
		(void)!symlink("../tree", path_of(below));
		break;
	default:
		(void)mkfifo(path_of(below), 0600);
	}
}

// Something else than a file, or a directory, in the place of what the store is made of.
static void put_special(unsigned which, unsigned kind)
{
	static const char *const places[] = {
		"store.json",
		"errors",
		"lock",
		"holder.json",
		"log/0000000000000001",
		"snap",
		"index",
		"index/data.mdb",
		"index/lock.mdb",
		"trash",
		"sessions",
		"tree",
		"log",
		"store.json.new",
		"control.sock",
	};
	const char *below = places[which % ARRAY_LEN(places)];
	char aside[PATH_MAX];

	snprintf(aside, sizeof(aside), "%.*s/aside", PATH_MAX - 16, fuzz_temp);
	ckpt_temp_empty(aside, 1);
	(void)unlink(aside);
	(void)rename(path_of(below), aside);
	switch (kind % 4) {
	case 0:
		(void)mkfifo(path_of(below), 0600);
		break;
	case 1:
		(void)!symlink(aside, path_of(below));
		break;
	case 2:
		(void)mkdir(path_of(below), 0700);
		break;
	default:
		write_file(below, "", 0);
	}
}

enum { IDENTITY, ORIGIN, FOLDER, RECORD, RECORD_SEALED, OTHER_RECORD, ERRORS, HOLDER, TRASH, SESSION, SPECIAL, KINDS };

static void replace(uint8_t what, uint8_t how, const uint8_t *data, size_t len)
{
	switch (what % KINDS) {
	case IDENTITY:
		write_file("store.json", data, len);
		break;
	case ORIGIN:
		(void)setxattr(path_of(left_session), "user.ckptfs.session", data, len, 0);
		break;
	case FOLDER:
		(void)setxattr(path_of("tree"), "user.ckptfs.folder", data, len, 0);
		break;
	case RECORD:
	case RECORD_SEALED:
		put_record("log/0000000000000002", data, len, what % KINDS == RECORD_SEALED);
		break;
	case OTHER_RECORD:
		put_named("log", data, len, how >> 2);
		break;
	case ERRORS:
		write_file("errors", data, len);
		break;
	case HOLDER:
		write_file("holder.json", data, len);
		break;
	case TRASH:
		put_named("trash", data, len, how >> 2);
		break;
	case SESSION:
		put_named("sessions", data, len, how >> 2);
		break;
	default:
		put_special(how >> 2, len ? data[0] : 0);
	}
}

// --- What is seen -----------------------------------------------------------------------------------------------------

static void walk_step(struct ckpt_step *step)
{
	struct ckpt_manifest *m;
	struct ckpt_record r;
	struct ckpt_entry e;
	char text[64];
	int fd, rc = ckpt_step_manifest(step, &m);

	if (!ckpt_step_record(step, step->version->is.version, &r))
		ckpt_record_done(&r);
	if (rc)
		return;
	ckpt_walk_manifest(m);
	for (uint32_t i = 0; i < ckpt_manifest_count(m); i++) {
		ckpt_manifest_entry(m, i, &e);
		if (ckpt_step_open_raw(step, m, i, &fd))
			continue;
		fuzz_assert(e.type == CKPT_ENTRY_FILE && read(fd, text, sizeof(text)) >= 0);
		close(fd);
	}
	ckpt_manifest_unref(m);
}

static bool is_kept(struct ckpt_step *step, bool special)
{
	struct ckpt_manifest *m;
	char text[sizeof(KEPT)] = "";
	uint32_t index;
	int fd, rc;

	if (strcmp(step->version->is.name, KEPT) || ckpt_step_state(step) != CKPT_STEP_COMMITTED ||
	    step->version->is.version != 1)
		return false;
	fuzz_assert(!ckpt_step_manifest(step, &m) && ckpt_manifest_count(m) == 2);
	fuzz_assert(!ckpt_manifest_lookup(m, "model", &index));
	rc = ckpt_step_open_raw(step, m, index, &fd);
	if (special && rc == -EIO) { // its files were taken away
		ckpt_manifest_unref(m);
		return false;
	}
	fuzz_assert(!rc && read(fd, text, sizeof(text)) == (ssize_t)strlen(KEPT) && !strcmp(text, KEPT));
	close(fd);
	ckpt_manifest_unref(m);
	return true;
}

static bool walk_store(struct ckpt_store *s, bool special)
{
	struct ckpt_stage_usage usage;
	struct ckpt_step **steps;
	CLEANUP_FREE char *errors = NULL;
	size_t count;
	bool kept = false;

	fuzz_assert(!ckpt_step_list(s, NULL, ~0u, &steps, &count));
	for (size_t i = 0; i < count; i++) {
		if (ckpt_step_has_manifest(ckpt_step_state(steps[i])))
			walk_step(steps[i]);
		else
			(void)ckpt_stage_usage(steps[i], &usage);
		kept |= is_kept(steps[i], special);
	}
	ckpt_step_list_free(steps, count);
	fuzz_assert(!ckpt_errlog_text(s->errlog, &errors));
	for (const char *p = errors; *p; p++)
		fuzz_assert(((unsigned char)*p >= 0x20 && *p != 0x7f) || *p == '\n' || *p == '\t');
	fuzz_assert(ckpt_name_is_utf8(errors, strlen(errors)));
	return kept;
}

static void look(uint8_t what, enum ckpt_store_mode mode)
{
	struct ckpt_settings settings;
	struct ckpt_holder holder;
	struct ckpt_store *s;
	bool damages;
	int rc;

	if (!ckpt_store_settings(dir, &settings))
		ckpt_settings_done(&settings);
	if (!ckpt_store_holder(dir, &holder))
		ckpt_holder_done(&holder);
	rc = ckpt_store_open(dir, mode, NULL, &s);
	fuzz_assert(rc <= 0 && rc > -512);
	damages = what % KINDS == IDENTITY || what % KINDS == SPECIAL || what % KINDS == OTHER_RECORD;
	if (rc) {
		fuzz_assert(damages || rc == -ENOTSUP || (mode == CKPT_STORE_WRITE && rc == -EUCLEAN));
		return;
	}
	// An identity that is another's makes all entries another's; and one can be put in place of the first.
	fuzz_assert(walk_store(s, what % KINDS == SPECIAL) || damages);
	ckpt_store_close(s);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_temp_init();
	snprintf(dir, sizeof(dir), "%.*s/store", PATH_MAX - 16, fuzz_temp);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (len < 2)
		return 0;
	make_store();
	replace(data[0], data[1], data + 2, len - 2);
	if (data[1] & 2)
		ckpt_temp_empty(path_of("index"), 1);
	look(data[0], data[1] & 1 ? CKPT_STORE_WRITE : CKPT_STORE_READ);
	look(data[0], CKPT_STORE_READ);
	fuzz_assert(data[0] % KINDS == SPECIAL || !access(path_of(KEEPER), F_OK));
	ckpt_temp_empty(dir, 1);
	return 0;
}
