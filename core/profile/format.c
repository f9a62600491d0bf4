// Every byte here is from outside: sizes are checked against the file before they are used, and no read is larger than a
// limit of its own.
#include "core/profile/format.h"

#include "core/array/pickle.h"
#include "core/array/zip.h"
#include "core/base/json.h"
#include "core/base/source.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdbool.h>
#include <sys/stat.h>

// Exactly so many bytes: -EINVAL where there are not so many.
static int read_at(const struct ckpt_source *f, uint64_t offset, void *buf, size_t len)
{
	int rc = ckpt_source_read(f, offset, buf, len);

	return rc == -ENODATA ? -EINVAL : rc;
}

// --- zip: .pt .npz .keras .zip ----------------------------------------------------------------------------------------

static bool is_zip(const uint8_t *head)
{
	return !memcmp(head, "PK\3\4", 4) || !memcmp(head, "PK\5\6", 4);
}

static int check_zip(const struct ckpt_source *f)
{
	struct ckpt_source shorter = *f;
	struct ckpt_zip z;
	uint64_t end;
	int rc = ckpt_zip_find(f, &z);

	// Something may follow it, which is no comment of its own.
	if (rc == -EINVAL && !ckpt_zip_last_end(f, &end)) {
		shorter.bytes = end;
		rc = ckpt_zip_find(&shorter, &z);
	}
	return rc == -ENODATA ? -EINVAL : rc;
}

// --- safetensors ------------------------------------------------------------------------------------------------------

// The end of the last tensor, from its header.
static int tensors_end(const char *text, size_t len, uint64_t *ret_end)
{
	json_t *header, *tensor;
	const char *name;
	int rc = ckpt_json_load(text, len, JSON_REJECT_DUPLICATES, NULL, &header);

	if (!rc && !json_is_object(header))
		rc = -EINVAL;
	*ret_end = 0;
	json_object_foreach(header, name, tensor)
	{
		const json_t *offsets = json_object_get(tensor, "data_offsets");
		json_int_t begin = json_integer_value(json_array_get(offsets, 0)),
			   end = json_integer_value(json_array_get(offsets, 1));

		if (!strcmp(name, "__metadata__"))
			continue;
		if (json_array_size(offsets) != 2 || begin < 0 || end < begin)
			rc = -EINVAL;
		*ret_end = MAX(*ret_end, (uint64_t)MAX(end, (json_int_t)0));
	}
	json_decref(header);
	return rc;
}

static int check_safetensors(const struct ckpt_source *f)
{
	CLEANUP_FREE char *text = NULL;
	uint8_t head[9];
	uint64_t len, end, want;
	int rc = read_at(f, 0, head, sizeof(head));

	len = rc ? 0 : ckpt_get64(head);
	if (rc == -EINVAL || (!rc && (head[8] != '{' || len > CKPT_SAFETENSORS_HEADER_MAX)))
		return 0; // it does not begin as one
	if (rc || len > f->bytes - 8)
		return rc ? rc : -EINVAL;
	if (len > CKPT_SAFETENSORS_PARSED_MAX)
		return 0; // of so many tensors there is no telling
	text = malloc((size_t)len + 1);
	rc = text ? read_at(f, 8, text, (size_t)len) : -ENOMEM;
	if (!rc)
		rc = tensors_end(text, (size_t)len, &end);
	if (rc)
		return rc == -EINVAL ? 0 : rc; // the header is there, and says nothing
	return __builtin_add_overflow(8 + len, end, &want) || want > f->bytes ? -EINVAL : 0;
}

// --- npy --------------------------------------------------------------------------------------------------------------

// What stands behind 'key': in the header, a Python dictionary; NULL.
static const char *value_of(const char *header, const char *key)
{
	const char *at = strstr(header, key);

	if (!at)
		return NULL;
	at += strlen(key);
	while (*at == ' ' || *at == ':')
		at++;
	return at;
}

// '<f4', '|S10', '<U3', '<M8[ns]'. False: a structure or objects, of which this says nothing.
static bool item_bytes(const char *descr, uint64_t *ret_bytes)
{
	char *end, kind;

	if (!descr || (*descr != '\'' && *descr != '"') || !strchr("<>|=", descr[1]) || !descr[1])
		return false;
	kind = descr[2];
	if (!kind || kind == 'O' || descr[3] < '0' || descr[3] > '9')
		return false;
	*ret_bytes = strtoull(descr + 3, &end, 10);
	if (kind == 'U')
		return !__builtin_mul_overflow(*ret_bytes, (uint64_t)4, ret_bytes);
	return true;
}

// (2, 3), (5,) or (): multiplied into *bytes, UINT64_MAX where no file could be so large. False: no such thing.
static bool times_shape(const char *shape, uint64_t *bytes)
{
	if (!shape || *shape != '(')
		return false;
	for (const char *at = shape + 1; *at != ')';) {
		uint64_t n;
		char *end;

		if (*at < '0' || *at > '9')
			return false;
		n = strtoull(at, &end, 10);
		if (__builtin_mul_overflow(*bytes, n, bytes))
			*bytes = UINT64_MAX;
		at = end;
		while (*at == ' ' || *at == ',' || *at == 'L')
			at++;
	}
	return true;
}

// Where the header and the array of this header end.
static bool npy_want(char *header, uint64_t start, uint64_t *ret_want)
{
	uint64_t bytes;

	if (!item_bytes(value_of(header, "'descr'"), &bytes) || !times_shape(value_of(header, "'shape'"), &bytes))
		return false;
	if (__builtin_add_overflow(start, bytes, ret_want))
		*ret_want = UINT64_MAX;
	return true;
}

// What begins as an array: behind it there may be more of them, or anything.
static int check_npy(const struct ckpt_source *f)
{
	CLEANUP_FREE char *header = NULL;
	uint8_t head[12];
	uint64_t len, start, want;
	int rc = read_at(f, 0, head, 10);

	if (!rc && (head[6] < 1 || head[6] > 3))
		return 0;
	if (!rc && head[6] > 1)
		rc = read_at(f, 0, head, 12);
	if (rc)
		return rc;
	len = head[6] == 1 ? ckpt_get16(head + 8) : ckpt_get32(head + 8);
	start = (head[6] == 1 ? 10 : 12) + len;
	if (len > CKPT_NPY_HEADER_MAX)
		return 0;
	header = malloc((size_t)len + 1);
	rc = header ? read_at(f, start - len, header, (size_t)len) : -ENOMEM;
	if (rc)
		return rc;
	header[len] = '\0';
	if (!npy_want(header, start, &want) || f->bytes >= want)
		return 0;
	return f->bytes == start ? -EAGAIN : -EINVAL;
}

// --- HDF5 -------------------------------------------------------------------------------------------------------------

#define HDF5_MAGIC "\x89HDF\r\n\x1a\n"
#define HDF5_FLAGS_AT 11 // consistency flags of superblock 3
#define HDF5_OPEN_FOR_WRITING 1
#define HDF5_SWMR 4

static uint64_t address(const uint8_t *p, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << 8 * i;
	return v;
}

static int check_superblock(const struct ckpt_source *f, const uint8_t *block)
{
	unsigned version = block[8], width = version < 2 ? block[13] : block[9];
	const uint8_t *addresses = block + (version == 0 ? 24 : version == 1 ? 28 : 12);
	uint64_t end;

	if (version > 3 || (width != 2 && width != 4 && width != 8))
		return 0;
	if (version == 3 && (block[HDF5_FLAGS_AT] & HDF5_OPEN_FOR_WRITING))
		return block[HDF5_FLAGS_AT] & HDF5_SWMR ? 0 : -EINVAL;
	end = address(addresses + 2 * (size_t)width, width); // behind the base and one more
	return end && end <= f->bytes ? 0 : -EINVAL;
}

bool ckpt_format_is_swmr(int fd)
{
	uint8_t block[HDF5_FLAGS_AT + 1];
	ssize_t n = ckpt_sys.pread(fd, block, sizeof(block), 0);

	return n == sizeof(block) && !memcmp(block, HDF5_MAGIC, 8) && block[8] == 3 &&
	       (block[HDF5_FLAGS_AT] & HDF5_SWMR) && (block[HDF5_FLAGS_AT] & HDF5_OPEN_FOR_WRITING);
}

// At 0, or behind a block of the user's, at 512, 1024, 2048 ...; -ENOENT: nowhere.
static int find_superblock(const struct ckpt_source *f, uint64_t *ret_at)
{
	uint8_t magic[8];

	for (uint64_t at = 0; f->bytes >= 8 && at <= f->bytes - 8 && at < (uint64_t)1 << 40; at = at ? at * 2 : 512) {
		int rc = read_at(f, at, magic, sizeof(magic));

		*ret_at = at;
		if (rc || !memcmp(magic, HDF5_MAGIC, sizeof(magic)))
			return rc;
	}
	return -ENOENT;
}

static int check_hdf5(const struct ckpt_source *f)
{
	uint8_t block[64];
	uint64_t at;
	int rc = find_superblock(f, &at);

	if (!rc)
		rc = read_at(f, at, block, sizeof(block));
	return rc == -ENOENT ? 0 : rc ? rc : check_superblock(f, block);
}

// --- pickle -----------------------------------------------------------------------------------------------------------

// Of bytes that are none, and of one that is too long to walk through, there is no telling.
static int check_pickle(const struct ckpt_source *f)
{
	uint64_t end;
	int rc = ckpt_pickle_end(f, &end);

	return rc == -ENODATA ? -EINVAL : rc == -EINVAL || rc == -EFBIG ? 0 : rc;
}

// --- Which ------------------------------------------------------------------------------------------------------------

static bool ends_in(const char *name, const char *end)
{
	size_t len = strlen(name), end_len = strlen(end);

	return len > end_len && !strcmp(name + len - end_len, end);
}

int ckpt_format_check(int fd, const char *name)
{
	uint8_t head[8] = {0};
	struct ckpt_source f;
	struct stat st;
	int rc;

	if (fstat(fd, &st))
		return -errno;
	f = ckpt_source_file(fd, (uint64_t)st.st_size);
	if (!f.bytes)
		return -ENODATA;
	rc = read_at(&f, 0, head, (size_t)MIN(f.bytes, (uint64_t)sizeof(head)));
	if (rc)
		return rc;
	if (ends_in(name, ".safetensors"))
		return check_safetensors(&f);
	if (ends_in(name, ".h5") || !memcmp(head, HDF5_MAGIC, sizeof(head)))
		return check_hdf5(&f);
	if (!memcmp(head, "\x93NUMPY", 6))
		return check_npy(&f);
	if (is_zip(head))
		return check_zip(&f);
	// MessagePack has maps that begin so.
	return head[0] == 0x80 && !ends_in(name, ".msgpack") ? check_pickle(&f) : 0;
}

int ckpt_format_check_strictly(int fd, const char *name)
{
	int rc = ckpt_format_check(fd, name);
	uint8_t head[9] = {0};
	struct ckpt_source f;
	struct stat st;
	uint64_t at;

	if (!rc && fstat(fd, &st))
		rc = -errno;
	if (rc)
		return rc == -ENODATA ? -EINVAL : rc;
	f = ckpt_source_file(fd, (uint64_t)st.st_size);
	rc = read_at(&f, 0, head, (size_t)MIN(f.bytes, (uint64_t)sizeof(head)));
	if (rc)
		return rc;
	if (ends_in(name, ".npz") || ends_in(name, ".zip"))
		return is_zip(head) ? 0 : -EINVAL;
	if (ends_in(name, ".npy"))
		return !memcmp(head, "\x93NUMPY", 6) ? 0 : -EINVAL;
	if (ends_in(name, ".safetensors"))
		return head[8] == '{' ? 0 : -EINVAL;
	if (ends_in(name, ".h5") || (ends_in(name, ".keras") && !is_zip(head)))
		rc = find_superblock(&f, &at);
	return rc == -ENOENT ? -EINVAL : rc;
}
