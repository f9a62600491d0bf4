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

static void append(struct ckpt_log *log, const char *store_id, uint64_t i, bool only_saves)
{
	struct ckpt_operation op = {.node = CKPT_REMOTE_LOG_NODE, .number = i, .required = true, .actor.uid = 1000};
	CLEANUP_FREE void *record = NULL, *body = NULL;
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
	ck_ok(ckpt_log_append(log, &op, 1, false));
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
