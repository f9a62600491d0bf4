#include "tools/convert_by.h"

#include "core/array/catalog_format.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "tools/output.h"
#include "tools/stop.h"
#include "tools/units.h"

#include <fcntl.h>
#include <unistd.h>

#define STREAM "output.safetensors" // the name that its reader knows it by
#define SPOOL ".ckptfs-output"
#define HINT "it writes a file of safetensors to its stdout: `ckptfs help convert`"

static const char *word_of(const struct ckpt_convert_by *by)
{
	return by->exec ? by->exec : by->plugin;
}

// --- The output, while it arrives -------------------------------------------------------------------------------------------

static int read_spool(void *arg, uint64_t offset, void *buf, size_t len)
{
	const struct ckpt_convert_by *by = arg;
	struct ckpt_source s = ckpt_source_file(by->filter.spool_fd, by->filter.got);

	return offset > s.bytes || len > s.bytes - offset ? -ENODATA : ckpt_source_read(&s, offset, buf, len);
}

static int open_spool(void *arg, const char *path __attribute__((unused)), struct ckpt_source *ret_source)
{
	const struct ckpt_convert_by *by = arg;

	*ret_source = (struct ckpt_source){.bytes = by->bytes, .read = read_spool, .arg = arg};
	return 0;
}

static void close_spool(void *arg __attribute__((unused)), struct ckpt_source *source __attribute__((unused)))
{
}

static int each_spool(void *arg __attribute__((unused)), const char *dir __attribute__((unused)),
		      int (*fn)(void *, const char *, uint64_t) __attribute__((unused)),
		      void *fn_arg __attribute__((unused)))
{
	return 0;
}

static int fail_output(const struct ckpt_convert_by *by, const char *why)
{
	return ckpt_fail(word_of(by), HINT, "its output %s", why);
}

static int check_arrays(const struct ckpt_convert_by *by)
{
	if (ckpt_catalog_faults(by->catalog)) {
		struct ckpt_catalog_fault f;

		ckpt_catalog_fault(by->catalog, 0, &f);
		return ckpt_fail(word_of(by), HINT, "its output: %s: %s", f.field, f.reason);
	}
	if (!ckpt_catalog_count(by->catalog))
		return fail_output(by, "has no array");
	for (size_t i = 0; i < ckpt_catalog_count(by->catalog); i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(by->catalog, i, &a);
		if (!*a.name)
			return fail_output(by, "has an array without a name");
		if (a.why || ckpt_dtype_bits(a.dtype) < 8)
			return ckpt_fail(word_of(by), HINT, "its output: %s: %s", a.name,
					 a.why ? a.why : "several of its elements share a byte");
	}
	return 0;
}

static int check_room(const struct ckpt_convert_by *by)
{
	char need[CKPT_SIZE_MAX], has[CKPT_SIZE_MAX];
	uint64_t room, all;

	if (by->bytes <= by->filter.got || ckpt_sys.room(by->filter.spool_fd, &room, &all) ||
	    by->bytes - by->filter.got <= room)
		return 0;
	return ckpt_fail(word_of(by), NULL, "its output is to take %s, and the disk has %s",
			 ckpt_size_text(by->bytes, need), ckpt_size_text(room, has));
}

// The catalog looks at the front of a file, which may be more than a short header: then bytes of the data have to arrive first.
static int read_header(struct ckpt_convert_by *by, uint64_t got)
{
	struct ckpt_source s = {.bytes = got, .read = read_spool, .arg = by};
	const char *why;
	int rc = ckpt_safetensors_bytes(&s, &by->bytes, &why);

	if (!rc && got < MIN(by->bytes, (uint64_t)CKPT_CATALOG_HEAD))
		return 0;
	if (!rc)
		rc = ckpt_catalog_new(&by->catalog);
	if (!rc)
		rc = ckpt_catalog_read(by->catalog, &by->files, STREAM);
	if (!rc)
		rc = ckpt_catalog_end(by->catalog);
	if (rc)
		return rc == -EINVAL ? fail_output(by, why ? why : "does not begin with a header of safetensors")
				     : ckpt_fail_errno(word_of(by), NULL, rc);
	rc = check_arrays(by);
	return rc ? rc : check_room(by);
}

static int look(void *arg, uint64_t got, uint64_t *ret_max)
{
	struct ckpt_convert_by *by = arg;
	uint8_t head[9];
	uint64_t len;
	int rc = 0;

	if (!by->catalog && got >= sizeof(head)) {
		rc = read_spool(by, 0, head, sizeof(head));
		len = ckpt_get64(head);
		if (!rc && (len < 2 || len > CKPT_ARRAY_HEADER_MAX || head[8] != '{'))
			return fail_output(by, "does not begin with a header of safetensors");
		if (rc)
			return ckpt_fail_errno(word_of(by), NULL, rc);
		if (got - 8 >= len)
			rc = read_header(by, got);
	}
	if (by->catalog)
		*ret_max = by->bytes;
	return rc;
}

// --- The input --------------------------------------------------------------------------------------------------------------

static int create(void *arg, const char *path __attribute__((unused)), uint64_t bytes __attribute__((unused)),
		  void **ret_file)
{
	*ret_file = arg;
	return 0;
}

// A .safetensors file is written from its front to its end, without a hole.
static int put(void *arg, void *file __attribute__((unused)), const void *bytes, size_t len, uint64_t offset)
{
	struct ckpt_convert_by *by = arg;

	if (offset != by->sent)
		return -ESPIPE;
	by->sent += len;
	return ckpt_filter_put(&by->filter, bytes, len) ? -ECANCELED : 0;
}

static int close_it(void *arg __attribute__((unused)), void *file __attribute__((unused)),
		    bool whole __attribute__((unused)))
{
	return 0;
}

int ckpt_convert_by_plan(struct ckpt_convert_by *by, struct ckpt_array_export *x)
{
	struct ckpt_export *in = &x->of, *out = &by->out.of;

	ckpt_array_export_begin(&by->out);
	by->out.word = word_of(by);
	out->format = in->format ? in->format : ckpt_export_format_of(in);
	out->shard_bytes = in->shard_bytes;
	out->dtype = in->dtype;
	in->format = "safetensors";
	in->shard_bytes = 0;
	in->dtype = CKPT_DTYPE_NONE;
	return ckpt_array_export_plan(x);
}

// --- Running it -------------------------------------------------------------------------------------------------------------

static int spool(struct ckpt_convert_by *by, int dirfd)
{
	int fd = ckpt_sys.open(dirfd, SPOOL, O_RDWR | O_CREAT | O_EXCL, 0600), rc;

	if (fd < 0)
		return ckpt_fail_errno(by->out.word, NULL, fd);
	by->filter.spool_fd = fd;
	rc = ckpt_sys.unlink(dirfd, SPOOL, 0);
	return rc ? ckpt_fail_errno(by->out.word, NULL, rc) : 0;
}

static int feed(struct ckpt_convert_by *by, struct ckpt_array_export *x)
{
	struct ckpt_write_target target = {.create = create, .write = put, .close = close_it, .arg = by};
	int rc = ckpt_export_write(&x->of, &target);

	if (!rc || by->filter.status)
		return by->filter.status;
	if (rc == -EINTR && ckpt_stopped)
		return 1;
	return ckpt_fail(x->word,
			 rc == -EBADMSG ? "`ckptfs check` says what is wrong; --not leaves an array out" : NULL, "%s",
			 *x->of.why ? x->of.why : strerror(-rc));
}

static int run(struct ckpt_convert_by *by, struct ckpt_array_export *x)
{
	const char *const shell[] = {"/bin/sh", "-c", by->exec, NULL};
	const char *const host[] = {"/proc/self/exe", "convert", "--host-plugin", by->plugin, NULL};
	int rc;

	by->filter.argv = by->exec ? shell : host;
	by->filter.word = word_of(by);
	by->filter.timeout_ns = by->timeout_ns;
	by->filter.look = look;
	by->filter.arg = by;
	rc = ckpt_filter_start(&by->filter);
	return rc ? rc : ckpt_filter_end(&by->filter, feed(by, x));
}

static int check_end(const struct ckpt_convert_by *by)
{
	if (!by->filter.got)
		return fail_output(by, "is empty");
	if (!by->bytes)
		return fail_output(by, "ends within its header");
	if (by->filter.got < by->bytes)
		return ckpt_fail(word_of(by), HINT, "its output ends after %llu bytes, and its header says %llu",
				 (unsigned long long)by->filter.got, (unsigned long long)by->bytes);
	return 0;
}

int ckpt_convert_by_write(struct ckpt_convert_by *by, struct ckpt_array_export *x, int dirfd)
{
	int rc;

	by->files =
		(struct ckpt_catalog_files){.open = open_spool, .close = close_spool, .each = each_spool, .arg = by};
	rc = spool(by, dirfd);
	if (!rc)
		rc = run(by, x);
	if (!rc)
		rc = check_end(by);
	if (rc)
		return rc;
	by->out.of.catalog = by->catalog;
	by->out.of.files = &by->files;
	rc = ckpt_array_export_plan(&by->out);
	return rc ? rc : ckpt_array_export_write(&by->out, dirfd);
}

void ckpt_convert_by_done(struct ckpt_convert_by *by)
{
	ckpt_array_export_done(&by->out);
	ckpt_catalog_free(TAKE_PTR(by->catalog));
	if (by->filter.spool_fd > 0)
		close(by->filter.spool_fd);
	by->filter.spool_fd = -1;
}
