#include "core/state/record_copy.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define NEW ".new"      // behind the id: a copy in the making
#define NAMES_MAX 1000u // that are tried for a step whose name is taken

// --- One copy -----------------------------------------------------------------------------------------------------------

static uint64_t hash(uint64_t h, const char *text)
{
	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return (h ^ '/') * UINT64_C(0x100000001b3);
}

// The version, and what else may change of a record: as a time of its file.
static struct timespec stamp_of(const struct ckpt_summary *sum)
{
	uint64_t h = hash(hash(UINT64_C(0xcbf29ce484222325), sum->folder_id), sum->name);

	return (struct timespec){.tv_sec = sum->version, .tv_nsec = (long)(h % 1000000000u)};
}

static int write_copy(int fd, const void *data, size_t len, const struct ckpt_summary *sum, bool deleted)
{
	const struct timespec stamp = stamp_of(sum), times[2] = {stamp, stamp};
	ssize_t n = ckpt_sys.pwrite(fd, data, len, 0);
	int rc = n < 0 ? (int)n : 0;

	if (!rc && deleted && fchmod(fd, 0))
		rc = -errno;
	return rc || !futimens(fd, times) ? rc : -errno;
}

static int put(const struct ckpt_record_copies *c, const void *data, size_t len, const struct ckpt_summary *sum,
	       bool deleted)
{
	char name[CKPT_UUID_LEN + sizeof(NEW)];
	int fd, rc;

	snprintf(name, sizeof(name), "%.*s" NEW, CKPT_UUID_LEN, sum->session);
	(void)ckpt_sys.unlink(c->records_fd, name, 0);
	fd = ckpt_sys.open(c->records_fd, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return fd;
	rc = write_copy(fd, data, len, sum, deleted);
	ckpt_sys.close(fd);
	if (!rc)
		rc = ckpt_sys.rename(c->records_fd, name, c->records_fd, sum->session, 0);
	if (rc)
		(void)ckpt_sys.unlink(c->records_fd, name, 0);
	return rc;
}

static int put_from_log(const struct ckpt_record_copies *c, const struct ckpt_said *said)
{
	CLEANUP_FREE void *data = NULL;
	struct ckpt_record r;
	size_t len;
	int rc = ckpt_journal_record(c->journal, said->is.session, said->is.version, &r);

	if (rc)
		return rc;
	rc = ckpt_record_encode(&r, &data, &len);
	ckpt_record_done(&r);
	return rc ? rc : put(c, data, len, &said->is, said->deleted_by);
}

// The mode alone: that cannot fail for want of room.
static int mark_deleted(const struct ckpt_record_copies *c, const char *session)
{
	CLEANUP_FD int fd = ckpt_sys.open(c->records_fd, session, O_RDONLY | O_NONBLOCK, 0);

	return fd < 0 ? fd : fchmod(fd, 0) ? -errno : 0;
}

void ckpt_record_copy_put(const struct ckpt_record_copies *c, const char *session, const void *record, size_t len)
{
	struct ckpt_said said;

	if (ckpt_journal_said(c->journal, session, &said))
		return;
	if (said.deleted_by && !mark_deleted(c, session))
		return;
	if (record && !said.deleted_by)
		(void)put(c, record, len, &said.is, false);
	else
		(void)put_from_log(c, &said);
}

void ckpt_record_copy_remove(const struct ckpt_record_copies *c, const char *session)
{
	(void)ckpt_sys.unlink(c->records_fd, session, 0);
}

// --- All of them --------------------------------------------------------------------------------------------------------

static bool is_right(const struct ckpt_record_copies *c, const struct ckpt_said *said)
{
	const struct timespec stamp = stamp_of(&said->is);
	struct stat st;

	return !fstatat(c->records_fd, said->is.session, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
	       st.st_size && (st.st_mode & 07777) == (said->deleted_by ? 0 : 0600) &&
	       st.st_mtim.tv_sec == stamp.tv_sec && st.st_mtim.tv_nsec == stamp.tv_nsec;
}

typedef int copy_fn(void *arg, const struct ckpt_record_copies *c, const char *name);

static int each_copy(const struct ckpt_record_copies *c, copy_fn *fn, void *arg)
{
	int fd = ckpt_sys.open(c->records_fd, ".", O_RDONLY | O_DIRECTORY, 0), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return fd < 0 ? fd : -ENOMEM;
	}
	while (!rc && !(rc = ckpt_sys.readdir(dir, &d)) && d)
		rc = fn(arg, c, d->d_name);
	closedir(dir);
	return rc;
}

// A copy is made when the log has its step, and goes before the log says that it has expired: with its files there, and without a step, it
// tells that the log has lost an entry.
static int look_for_stray(void *arg, const struct ckpt_record_copies *c, const char *name)
{
	unsigned *lost = arg;
	struct ckpt_said said;

	if (ckpt_uuid_check(name) && ckpt_journal_said(c->journal, name, &said) != -ENOENT)
		return 0;
	if (ckpt_uuid_check(name) && !faccessat(c->sessions_fd, name, F_OK, AT_SYMLINK_NOFOLLOW))
		++*lost;
	else
		(void)ckpt_sys.unlink(c->records_fd, name, 0);
	return 0;
}

int ckpt_record_copies_settle(const struct ckpt_record_copies *c, unsigned *ret_lost)
{
	CLEANUP_FREE struct ckpt_said *list = NULL;
	size_t count = 0;
	int rc;

	*ret_lost = 0;
	rc = each_copy(c, look_for_stray, ret_lost);
	if (!rc && !*ret_lost)
		rc = ckpt_journal_list(c->journal, &list, &count);
	for (size_t i = 0; i < count && !rc; i++)
		if (!is_right(c, &list[i]))
			(void)put_from_log(c, &list[i]);
	return rc;
}

// --- Salvage --------------------------------------------------------------------------------------------------------------

static int read_copy(const struct ckpt_record_copies *c, const char *name, struct ckpt_record *ret_record,
		     bool *ret_deleted)
{
	CLEANUP_FD int fd = ckpt_sys.open(c->records_fd, name, O_RDONLY | O_NONBLOCK, 0);
	CLEANUP_FREE void *data = NULL;
	struct stat st;
	ssize_t n;
	int rc;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > CKPT_RECORD_BYTES_MAX)
		return -EBADMSG;
	*ret_deleted = !(st.st_mode & 07777);
	data = malloc((size_t)st.st_size + 1);
	if (!data)
		return -ENOMEM;
	n = ckpt_sys.pread(fd, data, (size_t)st.st_size, 0);
	rc = n < 0 ? (int)n : ckpt_record_decode(data, (size_t)n, ret_record);
	if (rc)
		return rc;
	if (!strcmp(ret_record->store_id, c->store_id) && !strcmp(ret_record->summary.session, name) &&
	    !ret_record->summary.deleted)
		return 0;
	ckpt_record_done(ret_record);
	return -EBADMSG;
}

static int append(const struct ckpt_record_copies *c, struct ckpt_act *act, const struct ckpt_record *r)
{
	CLEANUP_FREE void *data = NULL;
	bool unknown;
	int rc = r ? ckpt_record_encode(r, &data, &act->record_len) : 0;

	act->record = data;
	return rc ? rc : ckpt_journal_append(c->journal, act, true, &unknown);
}

// Under its name, or one that is free.
static int save_again(const struct ckpt_record_copies *c, struct ckpt_record *r)
{
	char name[CKPT_NAME_MAX + 1];
	int rc = -ESTALE;

	memcpy(name, r->summary.name, sizeof(name));
	for (unsigned i = 0; rc == -ESTALE && i < NAMES_MAX; i++) {
		struct ckpt_act act = {.kind = CKPT_ACT_SAVE};

		if (i)
			snprintf(r->summary.name, sizeof(r->summary.name), "%.230s.salvaged", name);
		if (i > 1)
			snprintf(r->summary.name + strlen(r->summary.name), 16, "-%u", i);
		rc = append(c, &act, r);
	}
	return rc;
}

static int delete_again(const struct ckpt_record_copies *c, const char *session, uint32_t version)
{
	struct ckpt_act act = {.kind = CKPT_ACT_DELETE, .version = version + 1, .time_ns = ckpt_sys.now_ns()};

	memcpy(act.step, session, sizeof(act.step));
	return append(c, &act, NULL);
}

// The log may lack the newest version of the step, its deletion, or its undeletion.
static int catch_up(const struct ckpt_record_copies *c, const struct ckpt_said *said, struct ckpt_record *r,
		    bool deleted)
{
	struct ckpt_act act = {.kind = CKPT_ACT_AMEND};

	if (deleted)
		return said->deleted_by ? 1 : delete_again(c, said->is.session, said->is.version);
	if (said->deleted_by) {
		act = (struct ckpt_act){
			.kind = CKPT_ACT_UNDELETE, .version = r->summary.version, .time_ns = r->summary.committed_ns};
		memcpy(act.step, said->is.session, sizeof(act.step));
		return r->summary.version > said->deleted_by ? append(c, &act, NULL) : 1;
	}
	if (r->summary.version <= said->is.version)
		return 1;
	memcpy(r->summary.folder_id, said->is.folder_id, sizeof(r->summary.folder_id));
	memcpy(r->summary.name, said->is.name, sizeof(r->summary.name));
	return append(c, &act, r);
}

// 0; 1: the log says as much.
static int salvage_record(const struct ckpt_record_copies *c, struct ckpt_record *r, bool deleted)
{
	struct ckpt_said said;
	int rc = ckpt_journal_said(c->journal, r->summary.session, &said);

	if (!rc)
		return catch_up(c, &said, r, deleted);
	if (rc != -ENOENT)
		return rc;
	rc = save_again(c, r);
	return rc || !deleted ? rc : delete_again(c, r->summary.session, r->summary.version);
}

struct salvage {
	ckpt_record_salvaged_fn *fn;
	void *arg;
};

// It is in nobody's way any more, where the log has no such step either. One that a newer version has written, or that the disk does not
// give, is one all the same.
static void give_up(const struct salvage *salvage, const struct ckpt_record_copies *c, const char *name, int error)
{
	struct ckpt_said said;

	if ((error == -EBADMSG || error == -ELOOP) && ckpt_journal_said(c->journal, name, &said) == -ENOENT &&
	    !ckpt_sys.unlink(c->records_fd, name, 0))
		salvage->fn(salvage->arg, name, error);
}

// One without files is of what has expired.
static int salvage_copy(void *arg, const struct ckpt_record_copies *c, const char *name)
{
	const struct salvage *salvage = arg;
	struct ckpt_record r;
	bool deleted;
	int rc;

	if (!ckpt_uuid_check(name) || faccessat(c->sessions_fd, name, F_OK, AT_SYMLINK_NOFOLLOW))
		return 0;
	rc = read_copy(c, name, &r, &deleted);
	if (rc) {
		give_up(salvage, c, name, rc);
		return 0;
	}
	rc = salvage_record(c, &r, deleted);
	if (!rc)
		salvage->fn(salvage->arg, r.summary.name, 0);
	ckpt_record_done(&r);
	return rc == -ESTALE ? 0 : MIN(rc, 0);
}

int ckpt_record_copies_salvage(const struct ckpt_record_copies *c, ckpt_record_salvaged_fn *fn, void *arg)
{
	struct salvage salvage = {fn, arg};

	return each_copy(c, salvage_copy, &salvage);
}
