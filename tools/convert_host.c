// The other end of both streams, around a plugin's ckpt_convert(). A process of its own (tools/convert_by.c starts it): its memory, descriptors and
// signals are no other's.
#include "core/ckptfs_convert.h"

#include "core/array/array.h"
#include "core/array/array_format.h"
#include "core/array/buffer.h"
#include "core/array/write_layout.h"
#include "core/base/utf8.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "tools/convert_by.h"
#include "tools/output.h"

#include <dlfcn.h>
#include <unistd.h>

struct host {
	struct ckpt_convert c; // first: a plugin hands it back
	struct ckpt_arrays *in;
	struct ckpt_convert_array *arrays;
	uint64_t in_left; // bytes of the input that are still to be read
	int out_fd;
	struct ckpt_buffer header;
	uint64_t out_bytes, out_left;
	bool writes; // the header is out
};

static int read_all(int fd, void *into, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = TEMP_FAILURE_RETRY(read(fd, (char *)into + done, len - done));

		if (n <= 0)
			return n ? -errno : -ENODATA;
		done += (size_t)n;
	}
	return 0;
}

static int write_all(int fd, const void *bytes, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = TEMP_FAILURE_RETRY(write(fd, (const char *)bytes + done, len - done));

		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	return 0;
}

// --- What the plugin calls --------------------------------------------------------------------------------------------------

static int read_next(struct ckpt_convert *c, void *into, size_t len)
{
	struct host *h = (struct host *)c;

	if (len > h->in_left)
		return -ENODATA;
	h->in_left -= len;
	return read_all(STDIN_FILENO, into, len);
}

static bool is_text(const char *name)
{
	size_t len = strlen(name), n = 1;

	for (size_t at = 0; at < len && n; at += n)
		n = ckpt_utf8_sequence((const uint8_t *)name + at, len - at);
	return len && n;
}

static int add(struct ckpt_convert *c, const struct ckpt_convert_array *a)
{
	struct host *h = (struct host *)c;
	enum ckpt_dtype dtype = a->dtype ? ckpt_dtype_called(a->dtype) : CKPT_DTYPE_NONE;
	const char *type = dtype ? ckpt_write_safetensors.dtype(dtype) : NULL;
	uint64_t elements, bytes, end;

	if (h->writes)
		return -EBUSY;
	if (!type || !a->name || !is_text(a->name) || a->ndim > CKPT_ARRAY_DIMS_MAX ||
	    !ckpt_array_elements(a->shape, a->ndim, &elements) ||
	    __builtin_mul_overflow(elements, ckpt_dtype_width(dtype), &bytes) ||
	    __builtin_add_overflow(h->out_bytes, bytes, &end) || end > INT64_MAX)
		return -EINVAL;
	ckpt_buffer_text(&h->header, h->header.len ? "," : "{");
	ckpt_buffer_json(&h->header, a->name);
	ckpt_buffer_print(&h->header, ":{\"dtype\":\"%s\",\"shape\":[", type);
	for (unsigned i = 0; i < a->ndim; i++)
		ckpt_buffer_print(&h->header, "%s%llu", i ? "," : "", (unsigned long long)a->shape[i]);
	ckpt_buffer_print(&h->header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)h->out_bytes,
			  (unsigned long long)end);
	h->out_bytes = h->out_left = end;
	return h->header.rc;
}

static int begin_writing(struct host *h)
{
	uint8_t len[8];
	int rc;

	if (h->writes)
		return 0;
	h->writes = true;
	ckpt_buffer_text(&h->header, h->header.len ? "}" : "{}");
	if (h->header.rc)
		return h->header.rc;
	ckpt_put64(len, h->header.len);
	rc = write_all(h->out_fd, len, sizeof(len));
	return rc ? rc : write_all(h->out_fd, h->header.at, h->header.len);
}

static int write_next(struct ckpt_convert *c, const void *bytes, size_t len)
{
	struct host *h = (struct host *)c;
	int rc = begin_writing(h);

	if (rc)
		return rc;
	if (len > h->out_left)
		return -ENOSPC;
	h->out_left -= len;
	return write_all(h->out_fd, bytes, len);
}

// --- The input --------------------------------------------------------------------------------------------------------------

struct text {
	const uint8_t *at;
	size_t len;
};

static int read_text(void *arg, uint64_t offset, void *buf, size_t len)
{
	const struct text *t = arg;

	if (offset > t->len || len > t->len - offset)
		return -ENODATA;
	memcpy(buf, t->at + offset, len);
	return 0;
}

static int make_arrays(struct host *h)
{
	size_t count = ckpt_arrays_count(h->in);

	h->arrays = ckpt_calloc(count + 1, sizeof(*h->arrays));
	if (!h->arrays)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		struct ckpt_array a;

		ckpt_arrays_get(h->in, i, &a);
		h->arrays[i] = (struct ckpt_convert_array){a.name, ckpt_dtype_numpy(a.dtype), a.shape, a.ndim, a.bytes};
		h->in_left += a.bytes;
	}
	h->c.count = count;
	h->c.arrays = h->arrays;
	return 0;
}

static int read_input(struct host *h)
{
	CLEANUP_FREE uint8_t *text = NULL;
	struct ckpt_source s = {.read = read_text};
	const char *why;
	struct text t;
	uint8_t head[8];
	uint64_t len;
	int rc = read_all(STDIN_FILENO, head, sizeof(head));

	if (rc)
		return rc;
	len = ckpt_get64(head);
	if (len > CKPT_ARRAY_HEADER_MAX)
		return -EFBIG;
	text = malloc((size_t)len + sizeof(head));
	if (!text)
		return -ENOMEM;
	memcpy(text, head, sizeof(head));
	rc = read_all(STDIN_FILENO, text + sizeof(head), (size_t)len);
	t = (struct text){text, (size_t)len + sizeof(head)};
	s.arg = &t;
	s.bytes = t.len;
	if (!rc)
		rc = ckpt_safetensors_bytes(&s, &s.bytes, &why);
	if (!rc)
		rc = ckpt_arrays_read("in.safetensors", &s, &h->in);
	if (!rc)
		rc = h->in ? make_arrays(h) : -EINVAL;
	return rc;
}

// --- The plugin ---------------------------------------------------------------------------------------------------------------

static int call(struct host *h, const char *plugin)
{
	CLEANUP_FREE char *path = ckpt_text("%s%s", strchr(plugin, '/') ? "" : "./", plugin);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	int (*convert)(struct ckpt_convert *);
	int rc;

	if (!library)
		return ckpt_fail(plugin, NULL, "cannot be loaded: %s", dlerror());
	convert = (int (*)(struct ckpt_convert *))dlsym(library, "ckpt_convert");
	if (!convert)
		return ckpt_fail(plugin, "<ckptfs_convert.h> has its form", "has no function ckpt_convert()");
	rc = read_input(h);
	if (rc)
		return ckpt_fail_errno(plugin, NULL, rc);
	rc = convert(&h->c);
	if (rc)
		return ckpt_fail(plugin, NULL, "ckpt_convert() has failed: %s",
				 rc < 0 ? strerror(-rc) : "its own reason");
	rc = begin_writing(h);
	return rc ? ckpt_fail_errno(plugin, NULL, rc) : 0;
}

int ckpt_convert_host(const char *plugin)
{
	struct host h = {.c = {.read = read_next, .add = add, .write = write_next}};
	int rc;

	h.out_fd = dup(STDOUT_FILENO);
	if (h.out_fd < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return ckpt_fail_errno(plugin, NULL, -errno);
	rc = call(&h, plugin);
	ckpt_buffer_done(&h.header);
	ckpt_arrays_free(h.in);
	free(h.arrays);
	close(h.out_fd);
	return rc;
}
