// Every byte here is from outside. A rule that is broken is -EINVAL; what only a reader who unpacks would have to know is not
// looked at (checksums, times, attributes, comments).
#include "core/array/zip.h"

#include "core/base/util.h"
#include "core/limits.h"

#define END_BYTES 22
#define COMMENT_MAX 65535
#define LOCATOR_BYTES 20
#define END64_BYTES 56
#define MEMBER_BYTES 46 // in the directory, and the name, extra fields and a comment
#define LOCAL_BYTES 30  // in front of the bytes, and the name and extra fields
#define EXTRA_ZIP64 1
#define FLAG_ENCRYPTED 1
#define METHOD_DEFLATED 8

static bool has_mark(const uint8_t *p, char a, char b)
{
	return p[0] == 'P' && p[1] == 'K' && p[2] == a && p[3] == b;
}

// --- The end ------------------------------------------------------------------------------------------------------------

// In front of its end record, which is at `end`.
static int check_directory(const struct ckpt_zip *z, uint64_t end)
{
	uint64_t sum;

	return __builtin_add_overflow(z->directory, z->directory_bytes, &sum) || sum > end ? -EINVAL : 0;
}

static int find_zip64(const struct ckpt_source *s, uint64_t end, struct ckpt_zip *z)
{
	uint8_t locator[LOCATOR_BYTES], record[END64_BYTES];
	uint64_t at;
	int rc = end < sizeof(locator) ? -EINVAL : ckpt_source_read(s, end - sizeof(locator), locator, sizeof(locator));

	if (rc || !has_mark(locator, 6, 7))
		return rc ? rc : -EINVAL;
	at = ckpt_get64(locator + 8);
	rc = ckpt_source_read(s, at, record, sizeof(record));
	if (rc || !has_mark(record, 6, 6))
		return rc ? rc : -EINVAL;
	z->members = ckpt_get64(record + 32);
	z->directory_bytes = ckpt_get64(record + 40);
	z->directory = ckpt_get64(record + 48);
	return check_directory(z, at);
}

// record is the end record, at `end` of the source.
static int take_end(const struct ckpt_source *s, const uint8_t *record, uint64_t end, struct ckpt_zip *z)
{
	z->members = ckpt_get16(record + 10);
	z->directory_bytes = ckpt_get32(record + 12);
	z->directory = ckpt_get32(record + 16);
	if (z->directory_bytes == UINT32_MAX || z->directory == UINT32_MAX || z->members == UINT16_MAX)
		return find_zip64(s, end, z);
	return check_directory(z, end);
}

// What may hold the end record: malloc'ed.
static int read_tail(const struct ckpt_source *s, uint8_t **ret_tail, size_t *ret_len)
{
	size_t len = (size_t)MIN(s->bytes, (uint64_t)(END_BYTES + COMMENT_MAX));
	uint8_t *tail = malloc(len + 1);
	int rc = !tail ? -ENOMEM : len < END_BYTES ? -EINVAL : ckpt_source_read(s, s->bytes - len, tail, len);

	if (rc) {
		free(tail);
		return rc;
	}
	*ret_tail = tail;
	*ret_len = len;
	return 0;
}

// The last end record of the tail, whose comment ends with it (at_end) or in it; NULL.
static const uint8_t *last_record(const uint8_t *tail, size_t len, bool at_end)
{
	for (size_t at = len - END_BYTES + 1; at-- > 0;) {
		size_t comment = ckpt_get16(tail + at + 20), room = len - at - END_BYTES;

		if (has_mark(tail + at, 5, 6) && (at_end ? comment == room : comment <= room))
			return tail + at;
	}
	return NULL;
}

int ckpt_zip_find(const struct ckpt_source *s, struct ckpt_zip *ret_zip)
{
	CLEANUP_FREE uint8_t *tail = NULL;
	const uint8_t *record;
	size_t len;
	int rc = read_tail(s, &tail, &len);

	if (rc)
		return rc;
	record = last_record(tail, len, true);
	return record ? take_end(s, record, s->bytes - len + (size_t)(record - tail), ret_zip) : -EINVAL;
}

int ckpt_zip_last_end(const struct ckpt_source *s, uint64_t *ret_end)
{
	CLEANUP_FREE uint8_t *tail = NULL;
	const uint8_t *record;
	size_t len;
	int rc = read_tail(s, &tail, &len);

	if (rc)
		return rc;
	record = last_record(tail, len, false);
	if (!record)
		return -EINVAL;
	*ret_end = s->bytes - len + (size_t)(record - tail) + END_BYTES + ckpt_get16(record + 20);
	return 0;
}

// --- The members --------------------------------------------------------------------------------------------------------

struct raw_member { // as the directory has it
	uint64_t unpacked, packed, header;
	uint16_t flags, method, disk;
	const uint8_t *extra;
	size_t extra_len;
};

// One 64-bit number of the extra field, where the 32-bit one says that it is there.
static bool take_64(const uint8_t **at, const uint8_t *end, uint64_t *number)
{
	if (*number != UINT32_MAX)
		return true;
	if (end - *at < 8)
		return false;
	*number = ckpt_get64(*at);
	*at += 8;
	return true;
}

static int take_zip64(struct raw_member *m)
{
	const uint8_t *at = m->extra, *end = at + m->extra_len;

	while (end - at >= 4) {
		size_t len = ckpt_get16(at + 2);
		const uint8_t *field = at + 4;

		if (len > (size_t)(end - field))
			return -EINVAL;
		at = field + len;
		if (ckpt_get16(field - 4) == EXTRA_ZIP64)
			return take_64(&field, at, &m->unpacked) && take_64(&field, at, &m->packed) &&
					       take_64(&field, at, &m->header)
				       ? 0
				       : -EINVAL;
	}
	return m->unpacked == UINT32_MAX || m->packed == UINT32_MAX || m->header == UINT32_MAX ? -EINVAL : 0;
}

// The member at *at, and the one behind it.
static int take_member(const uint8_t **at, const uint8_t *end, struct ckpt_zip_member *ret_member)
{
	const uint8_t *p = *at;
	struct raw_member raw;
	size_t len;
	int rc;

	if (end - p < MEMBER_BYTES || !has_mark(p, 1, 2))
		return -EINVAL;
	ret_member->name = (const char *)p + MEMBER_BYTES;
	ret_member->name_len = ckpt_get16(p + 28);
	raw = (struct raw_member){
		.unpacked = ckpt_get32(p + 24),
		.packed = ckpt_get32(p + 20),
		.header = ckpt_get32(p + 42),
		.flags = ckpt_get16(p + 8),
		.method = ckpt_get16(p + 10),
		.disk = ckpt_get16(p + 34),
		.extra = p + MEMBER_BYTES + ret_member->name_len,
		.extra_len = ckpt_get16(p + 30),
	};
	len = MEMBER_BYTES + ret_member->name_len + raw.extra_len + ckpt_get16(p + 32);
	if (len > (size_t)(end - p))
		return -EINVAL;
	*at += len;
	rc = take_zip64(&raw);
	if (rc || (raw.disk && raw.disk != UINT16_MAX))
		return -EINVAL;
	ret_member->stored = raw.method == 0 && !(raw.flags & FLAG_ENCRYPTED);
	ret_member->deflated = raw.method == METHOD_DEFLATED && !(raw.flags & FLAG_ENCRYPTED);
	ret_member->unpacked = raw.unpacked;
	ret_member->header = raw.header;
	ret_member->bytes = raw.packed;
	ret_member->crc = ckpt_get32(p + 16);
	return ret_member->stored && raw.packed != raw.unpacked ? -EINVAL : 0;
}

int ckpt_zip_each(const struct ckpt_source *s, const struct ckpt_zip *z,
		  int (*fn)(void *arg, const struct ckpt_zip_member *m), void *arg)
{
	CLEANUP_FREE uint8_t *directory = NULL;
	const uint8_t *at, *end;
	uint64_t count = 0;
	int rc;

	if (z->directory_bytes > CKPT_ZIP_DIRECTORY_MAX)
		return -EINVAL;
	directory = malloc((size_t)z->directory_bytes + 1);
	rc = directory ? ckpt_source_read(s, z->directory, directory, (size_t)z->directory_bytes) : -ENOMEM;
	at = directory;
	end = directory + z->directory_bytes;
	for (; !rc && at < end; count++) {
		struct ckpt_zip_member m;

		rc = take_member(&at, end, &m);
		if (!rc)
			rc = fn(arg, &m);
	}
	return rc ? rc : count == z->members ? 0 : -EINVAL;
}

int ckpt_zip_data(const struct ckpt_source *s, const struct ckpt_zip_member *m, uint64_t *ret_offset)
{
	CLEANUP_FREE uint8_t *local = malloc(LOCAL_BYTES + m->name_len);
	uint64_t offset;
	int rc = local ? ckpt_source_read(s, m->header, local, LOCAL_BYTES + m->name_len) : -ENOMEM;

	if (rc)
		return rc;
	if (!has_mark(local, 3, 4) || ckpt_get16(local + 26) != m->name_len ||
	    memcmp(local + LOCAL_BYTES, m->name, m->name_len) ||
	    m->stored != (ckpt_get16(local + 8) == 0 && !(ckpt_get16(local + 6) & FLAG_ENCRYPTED)))
		return -EINVAL;
	if (__builtin_add_overflow(m->header, LOCAL_BYTES + m->name_len + ckpt_get16(local + 28), &offset))
		return -EINVAL;
	*ret_offset = offset;
	return 0;
}
