#include "core/log/entry.h"

#include "core/base/util.h"
#include "core/record/container.h"

// head := store id, seq, before, node, time, count. operation := form, nonce, node, uid, comm, body, up to a multiple of 8 with zeros.
enum {
	HEAD_STORE = 0,
	HEAD_SEQ = 40,
	HEAD_BEFORE = 48,
	HEAD_NODE = 80,
	HEAD_COUNT = 116,
	HEAD_TIME = 120,
	HEAD_BYTES = 128,

	OP_LENGTH = 0, // of the body
	OP_KIND = 4,
	OP_FLAGS = 6,
	OP_NUMBER = 8,
	OP_NONCE = 16,
	OP_NODE = 32,
	OP_UID = 68,
	OP_COMM = 72,
	OP_BODY = 88,
};

#define FLAG_REQUIRED 1u
#define SECTION_HEAD CKPT_FOURCC('H', 'E', 'A', 'D')
#define SECTION_OPERATIONS CKPT_FOURCC('O', 'P', 'E', 'R')

static const uint32_t known_sections[] = {SECTION_HEAD, SECTION_OPERATIONS};
static const struct ckpt_container_kind log_kind = {
	.magic = {'c', 'k', 'p', 't', '-', 'l', 'o', 'g'},
	.major = 1,
	.types = known_sections,
	.type_count = ARRAY_LEN(known_sections),
	.bytes_max = CKPT_LOG_ENTRY_BYTES_MAX,
};

static size_t padded(size_t len)
{
	return (len + 7) & ~(size_t)7;
}

size_t ckpt_log_entry_bytes(const struct ckpt_operation *operation)
{
	return OP_BODY + padded(operation->len);
}

static bool entry_ok(const struct ckpt_log_entry *e)
{
	static const uint8_t zeros[CKPT_SHA256_LEN];
	bool first = !memcmp(e->before, zeros, sizeof(zeros));

	return e->seq && e->count && ckpt_uuid_check(e->store_id) && ckpt_uuid_check(e->node) && first == (e->seq == 1);
}

static bool operation_ok(const struct ckpt_operation *op)
{
	return op->kind && ckpt_uuid_check(op->node) && ckpt_comm_check(op->actor.comm) &&
	       op->len <= CKPT_LOG_OPERATIONS_BYTES_MAX;
}

static void put_operation(uint8_t *p, const struct ckpt_operation *op)
{
	ckpt_put32(p + OP_LENGTH, (uint32_t)op->len);
	ckpt_put16(p + OP_KIND, op->kind);
	ckpt_put16(p + OP_FLAGS, op->required ? FLAG_REQUIRED : 0);
	ckpt_put64(p + OP_NUMBER, op->number);
	memcpy(p + OP_NONCE, op->nonce, CKPT_NONCE_LEN);
	memcpy(p + OP_NODE, op->node, CKPT_UUID_LEN);
	ckpt_put32(p + OP_UID, op->actor.uid);
	memcpy(p + OP_COMM, op->actor.comm, sizeof(op->actor.comm));
	if (op->len)
		memcpy(p + OP_BODY, op->body, op->len);
}

int ckpt_log_entry_encode(const struct ckpt_log_entry *e, const struct ckpt_operation *operations, void **ret_data,
			  size_t *ret_len)
{
	CLEANUP_FREE uint8_t *body = NULL;
	uint8_t head[HEAD_BYTES] = {0};
	struct ckpt_section sections[] = {{.type = SECTION_HEAD, .required = true, .data = head, .len = sizeof(head)},
					  {.type = SECTION_OPERATIONS, .required = true}};
	size_t len = 0;

	if (!entry_ok(e))
		return -EINVAL;
	for (uint32_t i = 0; i < e->count; i++) {
		if (!operation_ok(&operations[i]))
			return operations[i].len > CKPT_LOG_OPERATIONS_BYTES_MAX ? -EFBIG : -EINVAL;
		len += ckpt_log_entry_bytes(&operations[i]);
		if (len > CKPT_LOG_OPERATIONS_BYTES_MAX)
			return -EFBIG;
	}
	body = ckpt_calloc(1, len);
	if (!body)
		return -ENOMEM;
	for (size_t i = 0, at = 0; i < e->count; at += ckpt_log_entry_bytes(&operations[i++]))
		put_operation(body + at, &operations[i]);
	memcpy(head + HEAD_STORE, e->store_id, CKPT_UUID_LEN);
	ckpt_put64(head + HEAD_SEQ, e->seq);
	memcpy(head + HEAD_BEFORE, e->before, CKPT_SHA256_LEN);
	memcpy(head + HEAD_NODE, e->node, CKPT_UUID_LEN);
	ckpt_put32(head + HEAD_COUNT, e->count);
	ckpt_put64(head + HEAD_TIME, (uint64_t)e->time_ns);
	sections[1].data = body;
	sections[1].len = len;
	return ckpt_container_encode(&log_kind, 0, 0, sections, ARRAY_LEN(sections), ret_data, ret_len);
}

static bool is_zero(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

static void take_uuid(const uint8_t *p, char ret_uuid[CKPT_UUID_LEN + 1])
{
	memcpy(ret_uuid, p, CKPT_UUID_LEN);
	ret_uuid[CKPT_UUID_LEN] = '\0';
}

// The operation that begins there, of len bytes that are left; how many it takes, 0: none that could.
static size_t take_operation(const uint8_t *p, size_t len, struct ckpt_operation *ret)
{
	size_t bytes;

	if (len < OP_BODY || ckpt_get32(p + OP_LENGTH) > len - OP_BODY)
		return 0;
	ret->len = ckpt_get32(p + OP_LENGTH);
	bytes = ckpt_log_entry_bytes(ret);
	if (bytes > len || !is_zero(p + OP_BODY + ret->len, bytes - OP_BODY - ret->len) ||
	    ckpt_get16(p + OP_FLAGS) & ~FLAG_REQUIRED)
		return 0;
	ret->kind = ckpt_get16(p + OP_KIND);
	ret->required = ckpt_get16(p + OP_FLAGS) & FLAG_REQUIRED;
	ret->number = ckpt_get64(p + OP_NUMBER);
	memcpy(ret->nonce, p + OP_NONCE, CKPT_NONCE_LEN);
	take_uuid(p + OP_NODE, ret->node);
	ret->actor.uid = ckpt_get32(p + OP_UID);
	memcpy(ret->actor.comm, p + OP_COMM, sizeof(ret->actor.comm));
	ret->body = p + OP_BODY;
	return operation_ok(ret) ? bytes : 0;
}

bool ckpt_log_entry_next(const struct ckpt_log_entry *e, size_t *cursor, struct ckpt_operation *ret)
{
	if (*cursor >= e->operations_len)
		return false;
	*cursor += take_operation(e->operations + *cursor, e->operations_len - *cursor, ret);
	return true;
}

static int check_operations(const struct ckpt_log_entry *e)
{
	struct ckpt_operation op;
	uint32_t count = 0;

	for (size_t at = 0, bytes; at < e->operations_len; at += bytes, count++) {
		bytes = take_operation(e->operations + at, e->operations_len - at, &op);
		if (!bytes)
			return -EBADMSG;
	}
	return count == e->count ? 0 : -EBADMSG;
}

int ckpt_log_entry_decode(const void *data, size_t len, struct ckpt_log_entry *ret_entry)
{
	struct ckpt_section head, operations;
	struct ckpt_log_entry e = {0};
	struct ckpt_container c;
	const uint8_t *p;
	int rc = ckpt_container_parse(&log_kind, data, len, &c);

	if (rc)
		return rc;
	if (ckpt_container_find(&c, SECTION_HEAD, &head) || head.len != HEAD_BYTES ||
	    ckpt_container_find(&c, SECTION_OPERATIONS, &operations))
		return -EBADMSG;
	p = head.data;
	if (!is_zero(p + HEAD_STORE + CKPT_UUID_LEN, HEAD_SEQ - HEAD_STORE - CKPT_UUID_LEN))
		return -EBADMSG;
	take_uuid(p + HEAD_STORE, e.store_id);
	e.seq = ckpt_get64(p + HEAD_SEQ);
	memcpy(e.before, p + HEAD_BEFORE, CKPT_SHA256_LEN);
	take_uuid(p + HEAD_NODE, e.node);
	e.count = ckpt_get32(p + HEAD_COUNT);
	e.time_ns = (int64_t)ckpt_get64(p + HEAD_TIME);
	e.data = data;
	e.data_len = len;
	e.operations = operations.data;
	e.operations_len = operations.len;
	rc = entry_ok(&e) ? check_operations(&e) : -EBADMSG;
	if (!rc)
		*ret_entry = e;
	return rc;
}
