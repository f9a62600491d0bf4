#include "tests/support/remote_log.h"

#include "tests/support/formats.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/record/record.h"
#include "core/state/act.h"

#include <inttypes.h>
#include <stdio.h>

enum { SAVES = 6, AMEND = 6, PIN = 7, DELETE = 8, EXPIRE = 9, ROUND = 10 };

void ckpt_remote_log_session(uint64_t i, char ret_id[CKPT_UUID_LEN + 1])
{
	snprintf(ret_id, CKPT_UUID_LEN + 1, "44444444-4444-4444-8444-%012" PRIx64, i);
}

static void with_record(struct ckpt_act *a, const char *store_id, uint64_t step, uint32_t version, void **ret_record)
{
	struct ckpt_record r = {0};

	memcpy(r.store_id, store_id, CKPT_UUID_LEN);
	ckpt_sample_summary(&r.summary, "", version);
	snprintf(r.summary.name, sizeof(r.summary.name), "ckpt-%" PRIu64, step);
	r.summary.number = (int64_t)step;
	*r.summary.folder_id = '\0';
	r.summary.temporary = false;
	ckpt_put64(r.summary.nonce, step << 8 | version);
	ckpt_remote_log_session(step, r.summary.session);
	ck_ok(ckpt_record_encode(&r, ret_record, &a->record_len));
	a->record = *ret_record;
}

// The act of entry i, and the step that it is on.
static struct ckpt_act act_of(uint64_t i, bool only_saves, uint64_t *ret_step)
{
	unsigned place = only_saves ? 0 : (unsigned)((i - 1) % ROUND);
	uint64_t first = i - place;

	switch (place) {
	case AMEND:
		*ret_step = first + 2;
		return (struct ckpt_act){.kind = CKPT_ACT_AMEND, .version = 2};
	case PIN:
		*ret_step = first + 4;
		return (struct ckpt_act){.kind = CKPT_ACT_FLAG, .version = 2, .flags = CKPT_FLAG_PINNED, .time_ns = 5};
	case DELETE:
		*ret_step = first + 3;
		return (struct ckpt_act){.kind = CKPT_ACT_DELETE, .version = 2, .time_ns = 6};
	case EXPIRE:
		*ret_step = first + 3;
		return (struct ckpt_act){.kind = CKPT_ACT_EXPIRE, .version = 2, .time_ns = 7};
	default:
		*ret_step = i;
		return (struct ckpt_act){.kind = CKPT_ACT_SAVE, .version = 1};
	}
}

static void folder_id(uint64_t i, char ret_id[CKPT_FOLDER_ID_LEN + 1])
{
	snprintf(ret_id, CKPT_FOLDER_ID_LEN + 1, "%016" PRIx64, i);
}

static uint64_t version_of(uint64_t i)
{
	return i << 16 | 1; // the second operation of its entry
}

static void put_file(struct ckpt_act *a, uint64_t before, const char *name, const char *content)
{
	a->kind = CKPT_ACT_FILE;
	a->mode = 0640;
	a->uid = 1000;
	a->time_ns = 8;
	a->before = before;
	strcpy(a->name, name);
	a->content = content;
	a->content_len = strlen(content);
}

// The act of entry i on the plain tree. False: it has none.
static bool plain_act_of(uint64_t i, struct ckpt_act *a, char content[64])
{
	unsigned place = (unsigned)((i - 1) % ROUND);
	uint64_t first = i - place;

	*a = (struct ckpt_act){0};
	snprintf(content, 64, "content of %" PRIu64, i);
	if (place == 1 || place == 4 || place == AMEND)
		folder_id(first, a->folder_id);
	if (place == 0 || place == PIN) { // made, and moved
		*a = (struct ckpt_act){.kind = place ? CKPT_ACT_MOVE : CKPT_ACT_MKDIR,
				       .mode = place ? 0 : 0750,
				       .before = place ? version_of(first) : 0};
		folder_id(first, a->id);
		snprintf(a->name, sizeof(a->name), place ? "moved-%" PRIu64 : "folder-%" PRIu64, first);
	} else if (place == 1 || place == AMEND) {
		put_file(a, place == 1 ? 0 : version_of(first + 1), "file", content);
	} else if (place == 2) {
		put_file(a, 0, "", content);
		a->link = true;
	} else if (place == 4) {
		put_file(a, 0, "none", "");
	} else if (place == DELETE) {
		a->kind = CKPT_ACT_REMOVE;
		a->before = version_of(first + 2);
	}
	if (place == 2 || place == DELETE)
		snprintf(a->name, sizeof(a->name), "link-%" PRIu64, first);
	return a->kind;
}

static void append(struct ckpt_log *log, const char *store_id, uint64_t i, bool only_saves)
{
	struct ckpt_operation ops[2] = {0};
	struct ckpt_operation op = {.node = CKPT_REMOTE_LOG_NODE, .number = i, .required = true, .actor.uid = 1000};
	CLEANUP_FREE void *record = NULL, *body = NULL, *plain_body = NULL;
	char content[64];
	uint64_t step;
	struct ckpt_act a = act_of(i, only_saves, &step);

	if (ckpt_act_has_record(a.kind))
		with_record(&a, store_id, step, a.version, &record);
	else
		ckpt_remote_log_session(step, a.step);
	ck_ok(ckpt_act_encode(&a, &body, &op.len));
	op.kind = (uint16_t)a.kind;
	op.body = body;
	ckpt_put64(op.nonce, i);
	ops[0] = ops[1] = op;
	if (!only_saves && plain_act_of(i, &a, content)) {
		ck_ok(ckpt_act_encode(&a, &plain_body, &ops[1].len));
		ops[1].kind = (uint16_t)a.kind;
		ops[1].body = plain_body;
		ops[1].number = 0;
		ckpt_put64(ops[1].nonce + 8, 1);
	}
	ck_ok(ckpt_log_append(log, ops, plain_body ? 2 : 1, false));
}

static int pass(void *arg, const struct ckpt_log_entry *entry)
{
	(void)arg;
	(void)entry;
	return 0;
}

void ckpt_remote_log_make(struct ckpt_objects *remote, const char *store_id, uint64_t to, bool only_saves)
{
	struct ckpt_log *log;

	ck_ok(ckpt_log_new(remote, store_id, CKPT_REMOTE_LOG_NODE, NULL, false, pass, NULL, &log));
	ck_ok(ckpt_log_read(log));
	for (uint64_t i = ckpt_log_position(log).seq + 1; i <= to; i++)
		append(log, store_id, i, only_saves);
	ckpt_log_free(log);
}

unsigned ckpt_remote_log_steps(uint64_t to)
{
	unsigned whole = (unsigned)(to / ROUND) * (SAVES - 1), rest = (unsigned)(to % ROUND);

	return whole + (rest > DELETE ? SAVES - 1 : rest < SAVES ? rest : SAVES);
}

unsigned ckpt_remote_log_plains(uint64_t to)
{
	unsigned rest = (unsigned)(to % ROUND);

	return (unsigned)(to / ROUND) * 3 + (rest >= 1) + (rest >= 2) + (rest >= 3 && rest <= DELETE) + (rest >= 5);
}

void ckpt_remote_log_add(struct ckpt_objects *remote, const char *store_id, const struct ckpt_act *a)
{
	struct ckpt_operation op = {.node = CKPT_REMOTE_LOG_NODE, .kind = (uint16_t)a->kind, .required = true};
	CLEANUP_FREE void *body = NULL;
	struct ckpt_log *log;

	ck_ok(ckpt_log_new(remote, store_id, CKPT_REMOTE_LOG_NODE, NULL, false, pass, NULL, &log));
	ck_ok(ckpt_log_read(log));
	ck_ok(ckpt_act_encode(a, &body, &op.len));
	op.body = body;
	ckpt_put64(op.nonce, ckpt_log_position(log).seq + 1);
	ck_ok(ckpt_log_append(log, &op, 1, false));
	ckpt_log_free(log);
}
