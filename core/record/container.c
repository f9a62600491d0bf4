#include "core/record/container.h"

#include "core/base/hash.h"
#include "core/base/util.h"

#include <assert.h>

// container := header section-table section* digest
//
// Offsets in the header and in a row of the section table.
enum {
	H_MAGIC = 0,
	H_MAJOR = 8,
	H_MINOR = 10,
	H_SECTIONS = 12,
	H_REQUIRED = 16,
	H_OPTIONAL = 24,
	H_LENGTH = 32,
	S_TYPE = 0,
	S_FLAGS = 4,
	S_OFFSET = 8,
	S_LENGTH = 16,
};

#define SECTION_REQUIRED 1u

static uint64_t align_up(uint64_t n)
{
	return (n + CKPT_CONTAINER_ALIGN - 1) & ~(uint64_t)(CKPT_CONTAINER_ALIGN - 1);
}

static const uint8_t *table_row(const struct ckpt_container *c, uint32_t i)
{
	return c->data + CKPT_CONTAINER_HEADER_BYTES + (size_t)i * CKPT_CONTAINER_SECTION_BYTES;
}

static bool is_known(const struct ckpt_container_kind *kind, uint32_t type)
{
	for (size_t i = 0; i < kind->type_count; i++)
		if (kind->types[i] == type)
			return true;
	return false;
}

static bool is_zero(const uint8_t *p, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

// The parts that no version may change: magic, length, digest.
static int check_frame(const struct ckpt_container_kind *kind, const uint8_t *p, size_t len)
{
	uint8_t digest[CKPT_CONTAINER_DIGEST_BYTES];

	if (len < CKPT_CONTAINER_HEADER_BYTES + CKPT_CONTAINER_DIGEST_BYTES || len > kind->bytes_max)
		return -EBADMSG;
	if (memcmp(p + H_MAGIC, kind->magic, sizeof(kind->magic)) || ckpt_get64(p + H_LENGTH) != len)
		return -EBADMSG;
	ckpt_sha256(p, len - sizeof(digest), digest);
	return memcmp(p + len - sizeof(digest), digest, sizeof(digest)) ? -EBADMSG : 0;
}

// One row: *at is where the section must begin, and becomes its end.
static int check_row(const struct ckpt_container_kind *kind, const struct ckpt_container *c, uint32_t i, uint64_t limit,
		     uint64_t *at)
{
	const uint8_t *row = table_row(c, i);
	uint32_t type = ckpt_get32(row + S_TYPE), flags = ckpt_get32(row + S_FLAGS);
	uint64_t offset = ckpt_get64(row + S_OFFSET), length = ckpt_get64(row + S_LENGTH), start = align_up(*at);

	if (offset != start || start > limit || length > limit - start || !is_zero(c->data + *at, start - *at))
		return -EBADMSG;
	for (uint32_t j = 0; j < i; j++)
		if (ckpt_get32(table_row(c, j) + S_TYPE) == type)
			return -EBADMSG;
	if (flags & ~SECTION_REQUIRED)
		return -ENOTSUP;
	if ((flags & SECTION_REQUIRED) && !is_known(kind, type))
		return -ENOTSUP;
	*at = offset + length;
	return 0;
}

int ckpt_container_parse(const struct ckpt_container_kind *kind, const void *data, size_t len,
			 struct ckpt_container *ret_container)
{
	const uint8_t *p = data;
	struct ckpt_container c = {.data = data, .len = len};
	uint64_t limit, at;
	int r;

	r = check_frame(kind, p, len);
	if (r)
		return r;
	c.major = ckpt_get16(p + H_MAJOR);
	c.minor = ckpt_get16(p + H_MINOR);
	c.section_count = ckpt_get32(p + H_SECTIONS);
	c.required = ckpt_get64(p + H_REQUIRED);
	c.optional = ckpt_get64(p + H_OPTIONAL);
	if (!c.major)
		return -EBADMSG;
	if (c.major > kind->major || (c.required & ~kind->required_known))
		return -ENOTSUP;
	if (c.section_count > CKPT_CONTAINER_SECTIONS_MAX)
		return -EBADMSG;

	limit = len - CKPT_CONTAINER_DIGEST_BYTES;
	at = CKPT_CONTAINER_HEADER_BYTES + (uint64_t)c.section_count * CKPT_CONTAINER_SECTION_BYTES;
	if (at > limit)
		return -EBADMSG;
	for (uint32_t i = 0; i < c.section_count; i++) {
		r = check_row(kind, &c, i, limit, &at);
		if (r)
			return r;
	}
	if (align_up(at) != limit || !is_zero(p + at, limit - at))
		return -EBADMSG;
	*ret_container = c;
	return 0;
}

int ckpt_container_find(const struct ckpt_container *c, uint32_t type, struct ckpt_section *ret_section)
{
	for (uint32_t i = 0; i < c->section_count; i++) {
		const uint8_t *row = table_row(c, i);

		if (ckpt_get32(row + S_TYPE) != type)
			continue;
		*ret_section = (struct ckpt_section){
			.type = type,
			.required = ckpt_get32(row + S_FLAGS) & SECTION_REQUIRED,
			.data = c->data + ckpt_get64(row + S_OFFSET),
			.len = ckpt_get64(row + S_LENGTH),
		};
		return 0;
	}
	return -ENOENT;
}

// The length of the whole; -EFBIG.
static int measure(const struct ckpt_container_kind *kind, const struct ckpt_section *sections, size_t count,
		   size_t *ret_len)
{
	uint64_t len = CKPT_CONTAINER_HEADER_BYTES + count * CKPT_CONTAINER_SECTION_BYTES;

	for (size_t i = 0; i < count; i++) {
		if (sections[i].len > kind->bytes_max)
			return -EFBIG;
		len = align_up(len) + sections[i].len;
	}
	len = align_up(len) + CKPT_CONTAINER_DIGEST_BYTES;
	if (len > kind->bytes_max)
		return -EFBIG;
	*ret_len = len;
	return 0;
}

int ckpt_container_encode(const struct ckpt_container_kind *kind, uint64_t required, uint64_t optional,
			  const struct ckpt_section *sections, size_t count, void **ret_data, size_t *ret_len)
{
	uint64_t at = CKPT_CONTAINER_HEADER_BYTES + count * CKPT_CONTAINER_SECTION_BYTES;
	size_t len = 0;
	uint8_t *p;
	int r;

	assert(count <= CKPT_CONTAINER_SECTIONS_MAX);
	r = measure(kind, sections, count, &len);
	if (r)
		return r;
	p = ckpt_calloc(1, len);
	if (!p)
		return -ENOMEM;
	memcpy(p + H_MAGIC, kind->magic, sizeof(kind->magic));
	ckpt_put16(p + H_MAJOR, kind->major);
	ckpt_put16(p + H_MINOR, kind->minor);
	ckpt_put32(p + H_SECTIONS, (uint32_t)count);
	ckpt_put64(p + H_REQUIRED, required);
	ckpt_put64(p + H_OPTIONAL, optional);
	ckpt_put64(p + H_LENGTH, len);
	for (size_t i = 0; i < count; i++) {
		uint8_t *row = p + CKPT_CONTAINER_HEADER_BYTES + i * CKPT_CONTAINER_SECTION_BYTES;

		at = align_up(at);
		ckpt_put32(row + S_TYPE, sections[i].type);
		ckpt_put32(row + S_FLAGS, sections[i].required ? SECTION_REQUIRED : 0);
		ckpt_put64(row + S_OFFSET, at);
		ckpt_put64(row + S_LENGTH, sections[i].len);
		if (sections[i].len)
			memcpy(p + at, sections[i].data, sections[i].len);
		at += sections[i].len;
	}
	ckpt_sha256(p, len - CKPT_CONTAINER_DIGEST_BYTES, p + len - CKPT_CONTAINER_DIGEST_BYTES);
	*ret_data = p;
	*ret_len = len;
	return 0;
}
