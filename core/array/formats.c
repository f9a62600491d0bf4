#include "core/array/formats.h"

#include "core/array/write.h"
#include "core/base/util.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

// A row never changes once the count includes it: readers need no lock.
static struct ckpt_format rows[CKPT_FORMATS_MAX];
static _Atomic size_t row_count;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

// --- Registering ------------------------------------------------------------------------------------------------------------

static bool is_name(const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len = name ? strlen(name) : 0;

	return len && len <= CKPT_FORMAT_NAME_MAX && strspn(name, allowed) == len;
}

static bool is_ours(const char *name, unsigned version)
{
	for (size_t i = 0; version == 1 && ckpt_catalog_format_name(i); i++)
		if (!strcmp(ckpt_catalog_format_name(i), name))
			return true;
	return false;
}

static bool is_there(const char *name, unsigned version, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(rows[i].name, name) && (!version || rows[i].version == version))
			return true;
	return false;
}

static const struct ckpt_format *find_registered(struct ckpt_catalog_reading *r)
{
	for (size_t i = atomic_load(&row_count); i-- > 0;)
		if (rows[i].probe(rows[i].arg, r))
			return &rows[i];
	return NULL;
}

static int add_row(const struct ckpt_format *format)
{
	size_t count = atomic_load(&row_count);
	struct ckpt_format row = *format;

	if (is_ours(row.name, row.version) || is_there(row.name, row.version, count))
		return -EEXIST;
	if (count == CKPT_FORMATS_MAX)
		return -ENOSPC;
	row.name = strdup(format->name);
	if (!row.name)
		return -ENOMEM;
	rows[count] = row;
	atomic_store(&row_count, count + 1);
	atomic_store(&ckpt_catalog_registered, find_registered);
	return 0;
}

int ckpt_formats_register(const struct ckpt_format *format)
{
	int rc;

	if (!is_name(format->name) || !format->version || !format->probe || !format->read)
		return -EINVAL;
	pthread_mutex_lock(&registering);
	rc = add_row(format);
	pthread_mutex_unlock(&registering);
	return rc;
}

bool ckpt_formats_registered(void)
{
	return atomic_load(&row_count) != 0;
}

// --- Finding ----------------------------------------------------------------------------------------------------------------

struct text {
	char *at;
	size_t len;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->at + t->len, CKPT_FORMAT_WHY_MAX - t->len, format, args);
	va_end(args);
	t->len = MIN(t->len + (size_t)MAX(n, 0), (size_t)CKPT_FORMAT_WHY_MAX - 1);
}

int ckpt_formats_find(const char *action, const char *name, unsigned version, char why[CKPT_FORMAT_WHY_MAX])
{
	const char *(*ours)(size_t) = !strcmp(action, "read")    ? ckpt_catalog_format_name
				      : !strcmp(action, "write") ? ckpt_write_format
								 : NULL;
	size_t count = !strcmp(action, "read") ? atomic_load(&row_count) : 0;
	struct text t = {why, 0};

	for (size_t i = 0; ours && version < 2 && ours(i); i++)
		if (!strcmp(ours(i), name))
			return 0;
	if (is_there(name, version, count))
		return 0;
	add(&t, "no format is registered for (%.16s, %.*s, ", action, CKPT_FORMAT_NAME_MAX, name);
	if (version)
		add(&t, "%u)", version);
	else
		add(&t, "any version)");
	if (!ours) {
		add(&t, "; the actions are read and write");
		return -ENOENT;
	}
	add(&t, "; there are");
	for (size_t i = 0; ours(i); i++)
		add(&t, "%s (%s, %s, 1)", i ? "," : "", action, ours(i));
	for (size_t i = 0; i < count; i++)
		add(&t, ", (%s, %s, %u)", action, rows[i].name, rows[i].version);
	return -ENOENT;
}
