#include "core/array/write_zip.h"

#include "core/base/util.h"
#include "core/codec/codec_zlib.h"

#define LOCAL_BYTES 30
#define CRC_AT 14 // in a local header
#define DIRECTORY_CRC_AT 16
#define ZIP64_BYTES 20 // sizes
#define EXTRA_ZIP64 1
#define EXTRA_PAD 0x4246 // "FB", as torch has it
#define VERSION 20
#define VERSION_64 45
#define FLAG_UTF8 0x800
#define DATE 0x21 // 1980-01-01, the first that there is

void ckpt_zip_begin(struct ckpt_zip_writer *z, struct ckpt_layout *l)
{
	*z = (struct ckpt_zip_writer){.layout = l, .begin = ckpt_layout_at(l)};
}

// The fields that the local header and the directory share, from the version on.
static void put_common(struct ckpt_buffer *b, const struct ckpt_zip_record *m, bool large, size_t extra)
{
	ckpt_buffer_number(b, large ? VERSION_64 : VERSION, 2);
	ckpt_buffer_number(b, FLAG_UTF8, 2);
	ckpt_buffer_number(b, 0, 2); // stored
	ckpt_buffer_number(b, 0, 2);
	ckpt_buffer_number(b, DATE, 2);
	ckpt_buffer_number(b, m->crc, 4);
	ckpt_buffer_number(b, MIN(m->bytes, (uint64_t)UINT32_MAX), 4);
	ckpt_buffer_number(b, MIN(m->bytes, (uint64_t)UINT32_MAX), 4);
	ckpt_buffer_number(b, m->name_len, 2);
	ckpt_buffer_number(b, extra, 2);
}

void ckpt_zip_put_local(struct ckpt_buffer *b, const struct ckpt_zip_record *m, size_t align)
{
	bool large = m->bytes >= UINT32_MAX;
	size_t front = LOCAL_BYTES + m->name_len + (large ? ZIP64_BYTES : 0) + 4,
	       pad = (align - (m->header + front) % align) % align;

	ckpt_buffer_add(b, "PK\3\4", 4);
	put_common(b, m, large, (large ? ZIP64_BYTES : 0) + 4 + pad);
	ckpt_buffer_add(b, m->name, m->name_len);
	if (large) {
		ckpt_buffer_number(b, EXTRA_ZIP64, 2);
		ckpt_buffer_number(b, ZIP64_BYTES - 4, 2);
		ckpt_buffer_number(b, m->bytes, 8);
		ckpt_buffer_number(b, m->bytes, 8);
	}
	ckpt_buffer_number(b, EXTRA_PAD, 2);
	ckpt_buffer_number(b, pad, 2);
	ckpt_buffer_fill(b, 'Z', pad);
}

void ckpt_zip_put_entry(struct ckpt_buffer *b, const struct ckpt_zip_record *m)
{
	bool large = m->bytes >= UINT32_MAX, far = m->header >= UINT32_MAX;
	size_t extra = (large ? 16u : 0) + (far ? 8u : 0);

	ckpt_buffer_add(b, "PK\1\2", 4);
	ckpt_buffer_number(b, large || far ? VERSION_64 : VERSION, 2);
	put_common(b, m, large || far, extra ? 4 + extra : 0);
	ckpt_buffer_number(b, 0, 2); // comment
	ckpt_buffer_number(b, 0, 2); // disk
	ckpt_buffer_number(b, 0, 2);
	ckpt_buffer_number(b, 0, 4);
	ckpt_buffer_number(b, MIN(m->header, (uint64_t)UINT32_MAX), 4);
	ckpt_buffer_add(b, m->name, m->name_len);
	if (!extra)
		return;
	ckpt_buffer_number(b, EXTRA_ZIP64, 2);
	ckpt_buffer_number(b, extra, 2);
	if (large) {
		ckpt_buffer_number(b, m->bytes, 8);
		ckpt_buffer_number(b, m->bytes, 8);
	}
	if (far)
		ckpt_buffer_number(b, m->header, 8);
}

static void put_directory(struct ckpt_zip_writer *z, const struct ckpt_zip_record *m, size_t sum)
{
	struct ckpt_buffer *b = &z->directory;

	if (ckpt_grow((void **)&z->sums, &z->cap, z->count + 1, sizeof(*z->sums)) ||
	    ckpt_grow((void **)&z->sum_at, &z->sum_cap, z->count + 1, sizeof(*z->sum_at))) {
		b->rc = -ENOMEM;
		return;
	}
	z->sums[z->count] = sum;
	z->sum_at[z->count++] = b->len + DIRECTORY_CRC_AT;
	ckpt_zip_put_entry(b, m);
}

void ckpt_zip_add(struct ckpt_zip_writer *z, const char *name, const void *text, size_t len, size_t array)
{
	struct ckpt_layout *l = z->layout;
	const struct ckpt_write_array *a = array == CKPT_LAYOUT_TEXT ? NULL : &l->plan->arrays[array];
	uint64_t bytes = a ? ckpt_write_bytes(a) : 0, at = ckpt_layout_at(l);
	struct ckpt_zip_record m = {name, strlen(name), at - z->begin, len + bytes, ckpt_zip_crc(text, len)};
	struct ckpt_buffer local = {0};
	size_t sum = bytes ? ckpt_layout_sum(l, m.crc, at + CRC_AT) : 0;

	if (m.name_len > UINT16_MAX)
		ckpt_layout_refuse(l, a, "its name is too long for a zip file");
	ckpt_zip_put_local(&local, &m, CKPT_ZIP_ALIGN);
	ckpt_layout_add_buffer(l, &local);
	ckpt_layout_add(l, text, len);
	if (a)
		ckpt_layout_add_array(l, array, 0, bytes, sum);
	put_directory(z, &m, sum);
}

static void put_end64(struct ckpt_buffer *b, uint64_t members, uint64_t directory_bytes, uint64_t directory)
{
	ckpt_buffer_add(b, "PK\6\6", 4);
	ckpt_buffer_number(b, 44, 8);
	ckpt_buffer_number(b, VERSION_64, 2);
	ckpt_buffer_number(b, VERSION_64, 2);
	ckpt_buffer_number(b, 0, 8); // disks
	ckpt_buffer_number(b, members, 8);
	ckpt_buffer_number(b, members, 8);
	ckpt_buffer_number(b, directory_bytes, 8);
	ckpt_buffer_number(b, directory, 8);
	ckpt_buffer_add(b, "PK\6\7", 4);
	ckpt_buffer_number(b, 0, 4);
	ckpt_buffer_number(b, directory + directory_bytes, 8);
	ckpt_buffer_number(b, 1, 4);
}

uint32_t ckpt_zip_crc(const void *bytes, size_t len)
{
	return ckpt_crc32(0, bytes, len);
}

void ckpt_zip_put_end(struct ckpt_buffer *b, size_t members, uint64_t directory, uint64_t bytes)
{
	if (members >= UINT16_MAX || directory >= UINT32_MAX || bytes >= UINT32_MAX)
		put_end64(b, members, bytes, directory);
	ckpt_buffer_add(b, "PK\5\6", 4);
	ckpt_buffer_number(b, 0, 4); // disks
	ckpt_buffer_number(b, MIN(members, (size_t)UINT16_MAX), 2);
	ckpt_buffer_number(b, MIN(members, (size_t)UINT16_MAX), 2);
	ckpt_buffer_number(b, MIN(bytes, (uint64_t)UINT32_MAX), 4);
	ckpt_buffer_number(b, MIN(directory, (uint64_t)UINT32_MAX), 4);
	ckpt_buffer_number(b, 0, 2);
}

void ckpt_zip_end(struct ckpt_zip_writer *z)
{
	struct ckpt_layout *l = z->layout;
	uint64_t at = ckpt_layout_at(l) - z->begin, bytes = z->directory.len;
	struct ckpt_buffer end = {0};
	size_t done = 0;

	if (!l->rc)
		l->rc = z->directory.rc;
	for (size_t i = 0; i < z->count && !l->rc; i++) {
		if (!z->sums[i])
			continue;
		ckpt_layout_add(l, z->directory.at + done, z->sum_at[i] - done);
		ckpt_layout_add_sum(l, z->sums[i]);
		done = z->sum_at[i] + 4;
	}
	if (!l->rc)
		ckpt_layout_add(l, z->directory.at + done, z->directory.len - done);
	ckpt_zip_put_end(&end, z->count, at, bytes);
	ckpt_layout_add_buffer(l, &end);
	ckpt_buffer_done(&z->directory);
	free(z->sums);
	free(z->sum_at);
}
