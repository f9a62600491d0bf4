#include "core/array/data.h"

#include "core/base/sys.h"
#include "core/base/utf8.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <sys/stat.h>

#define HEAD_BYTES 4096            // what is looked at of a file
#define SNAPSHOT_BYTES (64u << 10) // of .snapshot_metadata, at once
#define SNAPSHOT_FILE ".snapshot_metadata"

// A look at one file.
struct look {
	const struct ckpt_source *source;
	int top_fd; // -1: the tree is not there
	const char *path, *name;
	uint8_t head[HEAD_BYTES];
	size_t len;
};

// Names under which a pickle or a zip holds arrays.
static const char *const checkpoint_names[] = {
	"*.pt",    "*.pth", "*.ckpt",  "*.bin",    "*.pkl",        "*.pickle",
	"*.pth.*", "*.npz", "*.keras", "*.distcp", "checkpoint_*", "*.model",
};

// Names of files that hold arrays, whatever their first bytes are.
static const char *const layout_names[] = {"*.distcp", "*.data-?*-of-?*"};

static const char *const zarr_files[] = {".zarray", "zarr.json", ".zattrs", ".zgroup", ".zmetadata"};

static const char *const known_names[] = {
	"*.distcp",
	".metadata",
	".metadata.tmp",
	"mp_rank_*",
	"*zero_pp_rank_*",
	"random_states_*.pkl",
	"rng_state*.pth",
	"optimizer.pt",
	"scheduler.pt",
	"training_args.bin",
	"trainer_state.json",
	"manifest.ocdbt",
	"_CHECKPOINT_METADATA",
	SNAPSHOT_FILE,
	".zarray",
	"*.safetensors.index.json",
	"*.data-?*-of-?*",
};

// Formats that hold no arrays, however large the file is.
static const struct {
	uint16_t offset, len;
	const char *bytes;
} other_formats[] = {
	{0, 8, "\x89PNG\r\n\x1a\n"},
	{0, 3, "\xff\xd8\xff"}, // JPEG
	{0, 4, "GIF8"},
	{0, 4, "RIFF"}, // WAV, WebP, AVI
	{0, 4, "OggS"},
	{0, 4, "fLaC"},
	{0, 3, "ID3"},
	{4, 4, "ftyp"},             // MP4
	{0, 4, "\x1a\x45\xdf\xa3"}, // Matroska, WebM
	{0, 4, "%PDF"},
	{0, 4,
	 "\x7f"
	 "ELF"},
	{0, 16, "SQLite format 3"}, // with its NUL
	{0, 4, "PAR1"},             // Parquet
	{0, 6, "ARROW1"},
	{0, 4, "PK\3\4"},   // archives of other programs
	{0, 2, "\x1f\x8b"}, // gzip
	{0, 3, "BZh"},
	{0, 6,
	 "\xfd"
	 "7zXZ\0"},
	{0, 4, "\x28\xb5\x2f\xfd"}, // zstd
	{0, 6, "7z\xbc\xaf\x27\x1c"},
	{257, 5, "ustar"},         // tar
	{23, 13, "brain.Event:2"}, // TensorBoard's log
};

static bool matches_any(const char *const *patterns, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!fnmatch(patterns[i], name, 0))
			return true;
	return false;
}

static bool begins(const struct look *l, size_t offset, const void *bytes, size_t len)
{
	return l->len >= offset + len && !memcmp(l->head + offset, bytes, len);
}

// --- The first bytes --------------------------------------------------------------------------------------------------

// A sequence that the end of the look cuts is no fault of the text.
static bool is_text(const struct look *l)
{
	size_t at = 0, step;

	if (memchr(l->head, '\0', l->len))
		return false;
	while (at < l->len && (step = ckpt_utf8_sequence(l->head + at, l->len - at)))
		at += step;
	return at == l->len || (l->len == HEAD_BYTES && l->len - at < 4 && l->head[at] >= 0xc2 && l->head[at] < 0xf5);
}

static bool is_safetensors(const struct look *l)
{
	uint64_t header = l->len > 8 ? ckpt_get64(l->head) : 0;

	return header > 1 && header <= CKPT_SAFETENSORS_HEADER_MAX && l->head[8] == '{';
}

static bool is_hdf5(const struct look *l)
{
	for (size_t at = 0; at < HEAD_BYTES; at = at ? at * 2 : 512) // behind a block of the user's
		if (begins(l, at, "\x89HDF\r\n\x1a\n", 8))
			return true;
	return false;
}

// By the first member: torch writes TOP/data.pkl, NumPy NAME.npy.
static bool is_array_zip(const struct look *l)
{
	static const char *const members[] = {"*.npy",
					      "*/data.pkl",
					      "*/data/*",
					      "*/version",
					      "*/byteorder",
					      "*/.format_version",
					      "*/.storage_alignment"};
	char name[CKPT_NAME_MAX + 1];
	size_t len;

	if (!begins(l, 0, "PK\3\4", 4) || l->len < 30)
		return false;
	len = MIN((size_t)ckpt_get16(l->head + 26), MIN(l->len - 30, (size_t)CKPT_NAME_MAX));
	memcpy(name, l->head + 30, len);
	name[len] = '\0';
	return matches_any(members, ARRAY_LEN(members), name);
}

static bool is_pickle(const struct look *l)
{
	return l->len > 2 && l->head[0] == 0x80 && l->head[1] >= 2 && l->head[1] <= 5;
}

// A map, as flax writes it.
static bool is_msgpack(const struct look *l)
{
	return !fnmatch("*.msgpack", l->name, 0) &&
	       ((l->head[0] & 0xf0) == 0x80 || l->head[0] == 0xde || l->head[0] == 0xdf);
}

static bool is_array_format(const struct look *l)
{
	bool named = matches_any(checkpoint_names, ARRAY_LEN(checkpoint_names), l->name);

	return is_safetensors(l) || is_hdf5(l) || is_array_zip(l) || is_msgpack(l) || begins(l, 0, "\x93NUMPY", 6) ||
	       begins(l, 0, "GGUF", 4) || (named && (is_pickle(l) || begins(l, 0, "PK\3\4", 4)));
}

static bool is_other_format(const struct look *l)
{
	for (size_t i = 0; i < ARRAY_LEN(other_formats); i++)
		if (begins(l, other_formats[i].offset, other_formats[i].bytes, other_formats[i].len))
			return true;
	return false;
}

// --- The layout -------------------------------------------------------------------------------------------------------

static bool has_beside(int top_fd, const char *dir, size_t dir_len, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	return top_fd >= 0 && (size_t)snprintf(path, sizeof(path), "%.*s%s", (int)dir_len, dir, name) < sizeof(path) &&
	       !fstatat(top_fd, path, &st, AT_SYMLINK_NOFOLLOW);
}

// Bytes of the path up to the last slash, that one too; 0: none.
static size_t dir_of(const char *path, size_t len)
{
	while (len && path[len - 1] != '/')
		len--;
	return len;
}

// zarr nests the numbers of a chunk: c/0/1 lies below its zarr.json.
static bool is_zarr_chunk(const struct look *l)
{
	size_t len = dir_of(l->path, strlen(l->path));

	if (matches_any(zarr_files, ARRAY_LEN(zarr_files), l->name))
		return false;
	for (;;) {
		size_t above = len ? dir_of(l->path, len - 1) : 0, part = len ? len - 1 - above : 0;

		if (has_beside(l->top_fd, l->path, len, ".zarray") || has_beside(l->top_fd, l->path, len, "zarr.json"))
			return true;
		if (!part || strspn(l->path + above, "0123456789c") != part)
			return false;
		len = above;
	}
}

// manifest.ocdbt comes after the files that it names: those have names of 32 hexadecimal digits.
static bool is_ocdbt_data(const struct look *l)
{
	size_t len = dir_of(l->path, strlen(l->path)), above = len ? dir_of(l->path, len - 1) : 0;

	if (len - above != 2 || l->path[above] != 'd')
		return false;
	return (strlen(l->name) == 32 && strspn(l->name, "0123456789abcdef") == 32) ||
	       has_beside(l->top_fd, l->path, above, "manifest.ocdbt");
}

// 1: .snapshot_metadata of the tree names the file.
static int is_in_snapshot(const struct look *l)
{
	size_t len = strlen(l->path), kept = 0;
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FD int fd = -1;
	off_t offset = 0;
	ssize_t n;

	if (l->top_fd < 0 || !has_beside(l->top_fd, "", 0, SNAPSHOT_FILE) || !strcmp(l->path, SNAPSHOT_FILE))
		return 0;
	fd = ckpt_sys.open(l->top_fd, SNAPSHOT_FILE, O_RDONLY | O_NONBLOCK, 0);
	text = malloc(PATH_MAX + SNAPSHOT_BYTES);
	if (fd < 0 || !text || len >= PATH_MAX)
		return fd < 0 ? (fd == -ENOENT ? 0 : fd) : text ? 0 : -ENOMEM;
	while ((n = ckpt_sys.pread(fd, text + kept, SNAPSHOT_BYTES, offset)) > 0) {
		size_t have = kept + (size_t)n;

		if (memmem(text, have, l->path, len))
			return 1;
		kept = MIN(have, len - 1);
		memmove(text, text + have - kept, kept);
		offset += n;
	}
	return (int)n;
}

static int is_in_layout(const struct look *l)
{
	if (matches_any(layout_names, ARRAY_LEN(layout_names), l->name) || is_zarr_chunk(l) || is_ocdbt_data(l))
		return 1;
	return is_in_snapshot(l);
}

// --- One file ---------------------------------------------------------------------------------------------------------

static bool is_large(const struct look *l)
{
	return l->source->bytes > CKPT_DATA_LARGE_BYTES;
}

int ckpt_data_is_source(const struct ckpt_source *source, int top_fd, const char *path)
{
	struct look l = {.source = source, .top_fd = top_fd, .path = path};
	const char *slash = strrchr(path, '/');
	int rc;

	l.name = slash ? slash + 1 : path;
	l.len = (size_t)MIN(source->bytes, (uint64_t)HEAD_BYTES);
	if (!l.len)
		return 0;
	rc = ckpt_source_read(source, 0, l.head, l.len);
	if (rc)
		return rc == -ENODATA ? 0 : rc; // it was truncated just now
	if (is_text(&l))
		return 0;
	if (is_array_format(&l))
		return 1;
	rc = is_in_layout(&l);
	return rc ? rc : is_large(&l) && !is_other_format(&l);
}

int ckpt_data_is_open(int fd, int top_fd, const char *path)
{
	struct ckpt_source source;
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return 0;
	source = ckpt_source_file(fd, (uint64_t)st.st_size);
	return ckpt_data_is_source(&source, top_fd, path);
}

int ckpt_data_is(int top_fd, const char *path)
{
	CLEANUP_FD int fd = ckpt_sys.open(top_fd, path, O_RDONLY | O_NONBLOCK, 0);

	if (fd < 0)
		return fd == -ELOOP || fd == -ENXIO ? 0 : fd; // a symlink, a socket
	return ckpt_data_is_open(fd, top_fd, path);
}

bool ckpt_data_is_known(const char *name)
{
	return matches_any(known_names, ARRAY_LEN(known_names), name);
}

// --- A tree -----------------------------------------------------------------------------------------------------------

struct search {
	int top_fd;
	char path[PATH_MAX];
};

static int search_below(struct search *s, size_t len, int depth);

// Files that go meanwhile, or that may not be read, are passed over.
static int search_at(struct search *s, size_t len, int type, int depth)
{
	int rc = 0;

	if (type == DT_DIR)
		return depth < CKPT_DEPTH_MAX ? search_below(s, len, depth + 1) : 0;
	if (type != DT_REG && type != DT_UNKNOWN)
		return 0;
	rc = ckpt_data_is(s->top_fd, s->path);
	if (!rc && type == DT_UNKNOWN)
		rc = search_below(s, len, depth + 1);
	return rc == -ENOENT || rc == -EACCES || rc == -ENOTDIR || rc == -ELOOP ? 0 : rc;
}

static int search_below(struct search *s, size_t len, int depth)
{
	int fd = ckpt_sys.open(s->top_fd, len ? s->path : ".", O_RDONLY | O_DIRECTORY, 0), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		rc = fd < 0 ? fd : -errno;
		if (fd >= 0)
			ckpt_sys.close(fd);
		return rc == -ENOENT || rc == -EACCES || rc == -ENOTDIR || rc == -ELOOP ? 0 : rc;
	}
	while (!rc && !(rc = ckpt_sys.readdir(dir, &e)) && e) {
		int added = snprintf(s->path + len, sizeof(s->path) - len, "%s%s", len ? "/" : "", e->d_name);

		if ((size_t)added < sizeof(s->path) - len)
			rc = search_at(s, len + (size_t)added, e->d_type, depth);
		s->path[len] = '\0';
	}
	closedir(dir);
	return rc;
}

int ckpt_data_any(int top_fd)
{
	CLEANUP_FREE struct search *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->top_fd = top_fd;
	return search_below(s, 0, 0);
}
