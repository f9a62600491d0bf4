#include "tools/doctor.h"

#include "core/base/util.h"
#include "core/log/log.h"
#include "core/objects/probe.h"
#include "core/objects/stack.h"
#include "core/remote/look.h"
#include "tools/output.h"
#include "tools/units.h"

#include <inttypes.h>

static void see(void *arg, const struct ckpt_finding *f)
{
	ckpt_doctor_tell(arg, f->name, f->verdict == CKPT_FINDING_FAIL, f->verdict == CKPT_FINDING_OK,
			 ckpt_text("%s", f->detail), f->hint ? ckpt_text("%s", f->hint) : NULL);
}

static char *cause(struct ckpt_objects *o, int rc)
{
	char why[CKPT_OBJECTS_WHY_MAX];

	ckpt_objects_why(o, why);
	return ckpt_text("%s", *why ? why : strerror(-rc));
}

// The rule that all nodes rely on: of several who put one key, one wins.
static void check_condition(struct ckpt_doctor *d, struct ckpt_objects *o, const struct ckpt_rights *rights)
{
	static const char name[] = "put_if_absent";
	char why[CKPT_PROBE_WHY_MAX];
	int rc;

	if (!rights->put || !rights->remove || !rights->get || !rights->list) {
		ckpt_doctor_tell(d, name, false, false,
				 ckpt_text("not tried: it takes the rights to list, get, put and delete"), NULL);
		return;
	}
	rc = ckpt_objects_probe(o, true, why);
	ckpt_doctor_tell(d, name, true, !rc,
			 !rc ? ckpt_text("a key that is taken is refused, and of many puts at once one wins")
			 : rc == -ENOTSUP ? ckpt_text("not honoured: %s", why)
					  : cause(o, rc),
			 rc == -ENOTSUP ? ckpt_text("take another server: two nodes would lose each other's steps. "
						    "`-o ro` mounts a store that is there")
					: NULL);
}

// An entry that a server does not give now is no damaged one: only damage is mended with a copy of the bucket.
static void tell_unread(struct ckpt_doctor *d, struct ckpt_objects *o, const struct ckpt_remote_seen *seen)
{
	char key[CKPT_LOG_KEY_MAX];
	CLEANUP_FREE char *why = NULL;
	const char *hint = NULL;

	ckpt_log_key(seen->unread, key);
	switch (seen->error) {
	case -EBADMSG:
		why = ckpt_text("it is damaged, or does not follow the one before");
		hint = "nodes show what was before that entry: put the object back from a copy of the bucket";
		break;
	case -ENOTSUP:
		why = ckpt_text("a newer ckptfs has put it");
		hint = "install a newer ckptfs: nodes show what was before that entry";
		break;
	case -ESTALE:
		why = ckpt_text("it was removed, and no snapshot that can be read replaces it");
		hint = "try again: another node may have put a snapshot meanwhile";
		break;
	default:
		why = cause(o, seen->error);
	}
	ckpt_doctor_tell(d, "remote_store", true, false, ckpt_text("%s cannot be read: %s", key, why),
			 hint ? ckpt_text("%s", hint) : NULL);
}

static void tell_seen(struct ckpt_doctor *d, struct ckpt_objects *o, const struct ckpt_remote_seen *seen)
{
	char when[CKPT_TIME_MAX];
	CLEANUP_FREE char *snapshot = seen->snapshot
					      ? ckpt_text("the newest snapshot is of entry %" PRIu64 ", %s",
							  seen->snapshot, ckpt_time_local(seen->snapshot_ns, when))
					      : ckpt_text("no snapshot yet");

	if (seen->unread)
		tell_unread(d, o, seen);
	else
		ckpt_doctor_tell(d, "remote_store", true, true,
				 ckpt_text("format %" PRIu64 ", %" PRIu64 " steps, %" PRIu64 " entries in the log; %s",
					   seen->format, seen->steps, seen->entries, snapshot),
				 NULL);
}

static void check_store(struct ckpt_doctor *d, struct ckpt_objects *o, const struct ckpt_rights *rights)
{
	static const char name[] = "remote_store";
	struct ckpt_remote_seen seen;
	int rc;

	if (!rights->get || !rights->list) {
		ckpt_doctor_tell(d, name, false, false, ckpt_text("not looked at: it takes the rights to list and get"),
				 NULL);
		return;
	}
	rc = ckpt_remote_look(o, &seen);
	if (!rc)
		tell_seen(d, o, &seen);
	else if (rc == -ENOENT)
		ckpt_doctor_tell(d, name, true, true, ckpt_text("none yet: the first mount for writing makes it"),
				 NULL);
	else if (rc == -EMEDIUMTYPE)
		ckpt_doctor_tell(d, name, true, false,
				 ckpt_text(CKPT_OBJECT_IDENTITY " there is not that of a store of ckptfs"),
				 ckpt_text("take another prefix"));
	else if (rc == -ENOTSUP)
		ckpt_doctor_tell(d, name, true, false, ckpt_text("the store was made by a newer ckptfs"),
				 ckpt_text("install that one"));
	else
		ckpt_doctor_tell(d, name, true, false, cause(o, rc), NULL);
}

int ckpt_doctor_open(const char *url, const char *const *options, struct ckpt_objects **ret_objects)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	const struct ckpt_objects_at at = {.url = url, .dirfd = -1, .writable = true, .options = options, .why = why};
	int rc = ckpt_objects_open(&at, ret_objects);

	return rc ? ckpt_fail(url, NULL, "%s", *why ? why : strerror(-rc)) : 0;
}

int ckpt_doctor_remote(struct ckpt_doctor *d, const char *url, const char *const *options)
{
	struct ckpt_rights rights = {0};
	struct ckpt_objects *o;
	int rc = ckpt_doctor_open(url, options, &o);

	if (rc)
		return rc;
	rc = ckpt_objects_describe(o, see, d, &rights);
	if (!rc) {
		check_condition(d, o, &rights);
		check_store(d, o, &rights);
	}
	ckpt_objects_close(o);
	d->status = rc ? 1 : d->status;
	return 0;
}
