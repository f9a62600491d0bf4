#include "core/state/pull.h"

#include "core/base/util.h"
#include "core/record/record.h"
#include "core/state/act.h"

// pull := length of host u16, zero u16, acts u32, host, up to a multiple of 8 with zeros, act*, entry
// act  := kind u16, zero u16, length u32, body, up to a multiple of 8 with zeros
enum {
	PULL_HOST_LEN = 0,
	PULL_ACTS = 4,
	PULL_BYTES = 8,

	ACT_KIND = 0,
	ACT_LEN = 4,
	ACT_BYTES = 8,
};

static size_t padded(size_t len)
{
	return (len + 7) & ~(size_t)7;
}

bool ckpt_pulled_next(const struct ckpt_pulled *p, size_t *cursor, struct ckpt_operation *ret)
{
	const uint8_t *at = p->acts + *cursor;

	if (p->acts_len - *cursor < ACT_BYTES || ckpt_get32(at + ACT_LEN) > p->acts_len - *cursor - ACT_BYTES)
		return false;
	*ret = (struct ckpt_operation){
		.kind = ckpt_get16(at + ACT_KIND), .body = at + ACT_BYTES, .len = ckpt_get32(at + ACT_LEN)};
	*cursor += ACT_BYTES + padded(ret->len);
	return *cursor <= p->acts_len && !ckpt_get16(at + ACT_KIND + 2);
}

static int check_record(const char *store_id, const struct ckpt_act *a)
{
	struct ckpt_record r;
	int rc = ckpt_act_has_record(a->kind) ? ckpt_record_decode(a->record, a->record_len, &r) : 0;

	if (rc || !ckpt_act_has_record(a->kind))
		return rc;
	rc = strcmp(r.store_id, store_id) || r.summary.deleted || !*r.summary.session ||
			     r.summary.version > CKPT_STATE_VERSION_MAX
		     ? -EBADMSG
		     : 0;
	ckpt_record_done(&r);
	return rc;
}

// Behind its acts stands the entry: it ends where the body ends.
static int take_acts(struct ckpt_pulled *p, const char *store_id, size_t left)
{
	struct ckpt_operation op;
	size_t cursor = 0;

	p->acts_len = left;
	for (uint32_t i = 0; i < p->act_count; i++) {
		struct ckpt_act a;
		int rc;

		if (!ckpt_pulled_next(p, &cursor, &op) || op.kind == CKPT_ACT_SET || op.kind == CKPT_ACT_EXPIRE ||
		    op.kind == CKPT_ACT_DROP || op.kind == CKPT_ACT_MERGE || ckpt_act_is_of_remote(op.kind) ||
		    ckpt_act_decode(op.kind, op.body, op.len, &a))
			return -EBADMSG;
		rc = check_record(store_id, &a);
		if (rc)
			return rc;
	}
	p->acts_len = cursor;
	p->entry = p->acts + cursor;
	p->entry_len = left - cursor;
	return 0;
}

bool ckpt_pull_is_host(const char *host, size_t len)
{
	return len && len <= CKPT_PULL_HOST_MAX && !memchr(host, '\0', len) && !ckpt_name_check(host, len);
}

bool ckpt_pull_has_host(const void *body, size_t len)
{
	return len >= PULL_BYTES && ckpt_get16((const uint8_t *)body + PULL_HOST_LEN);
}

int ckpt_pull_decode(const char *store_id, const void *body, size_t len, struct ckpt_pulled *ret)
{
	size_t host_len = len < PULL_BYTES ? 0 : ckpt_get16((const uint8_t *)body + PULL_HOST_LEN);
	struct ckpt_pulled p = {0};
	const uint8_t *at = body;
	int rc;

	if (len < PULL_BYTES + padded(host_len) || host_len > CKPT_PULL_HOST_MAX || ckpt_get16(at + PULL_HOST_LEN + 2))
		return -EBADMSG;
	memcpy(p.host, at + PULL_BYTES, host_len);
	if (host_len && !ckpt_pull_is_host(p.host, host_len))
		return -EBADMSG;
	p.act_count = ckpt_get32(at + PULL_ACTS);
	p.acts = at + PULL_BYTES + padded(host_len);
	rc = take_acts(&p, store_id, len - PULL_BYTES - padded(host_len));
	if (!rc)
		*ret = p;
	return rc;
}

static int check_operation(const char *store_id, const struct ckpt_operation *op)
{
	struct ckpt_act a;
	int rc;

	if (op->kind == CKPT_PULL_KIND || op->kind == CKPT_ACT_MERGE)
		return -EBADMSG;
	if (op->kind >= CKPT_ACT_KINDS)
		return op->required ? -ENOTSUP : 0;
	rc = ckpt_act_decode(op->kind, op->body, op->len, &a);
	if (!rc && a.version > CKPT_STATE_VERSION_MAX)
		rc = -EBADMSG;
	return rc ? rc : check_record(store_id, &a);
}

int ckpt_pulled_entry(const struct ckpt_pulled *p, const char *store_id, struct ckpt_log_entry *ret)
{
	struct ckpt_log_entry entry;
	struct ckpt_operation op;
	int rc = ckpt_log_entry_decode(p->entry, p->entry_len, &entry);

	if (!rc && strcmp(entry.store_id, store_id))
		rc = -EBADMSG;
	for (size_t cursor = 0; !rc && ckpt_log_entry_next(&entry, &cursor, &op);)
		rc = check_operation(store_id, &op);
	if (!rc)
		*ret = entry;
	return rc;
}

int ckpt_pull_check(const char *store_id, const void *body, size_t len)
{
	struct ckpt_log_entry entry;
	struct ckpt_pulled p;
	int rc = ckpt_pull_decode(store_id, body, len, &p);

	return rc || !p.entry_len ? rc : ckpt_pulled_entry(&p, store_id, &entry);
}

int ckpt_pull_encode(const struct ckpt_pull *pull, void **ret_body, size_t *ret_len)
{
	size_t host_len = strlen(pull->host), len = PULL_BYTES + padded(host_len) + pull->entry_len;
	uint8_t *body, *at;

	if (host_len > CKPT_PULL_HOST_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < pull->act_count; i++)
		len += ACT_BYTES + padded(pull->acts[i].len);
	if (len > CKPT_LOG_OPERATIONS_BYTES_MAX)
		return -EFBIG;
	body = ckpt_calloc(1, len);
	if (!body)
		return -ENOMEM;
	ckpt_put16(body + PULL_HOST_LEN, (uint16_t)host_len);
	ckpt_put32(body + PULL_ACTS, pull->act_count);
	memcpy(body + PULL_BYTES, pull->host, host_len);
	at = body + PULL_BYTES + padded(host_len);
	for (uint32_t i = 0; i < pull->act_count; i++) {
		ckpt_put16(at + ACT_KIND, pull->acts[i].kind);
		ckpt_put32(at + ACT_LEN, (uint32_t)pull->acts[i].len);
		memcpy(at + ACT_BYTES, pull->acts[i].body, pull->acts[i].len);
		at += ACT_BYTES + padded(pull->acts[i].len);
	}
	if (pull->entry_len)
		memcpy(at, pull->entry, pull->entry_len);
	*ret_body = body;
	*ret_len = len;
	return 0;
}
