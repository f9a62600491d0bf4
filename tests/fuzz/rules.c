// Hostile rules for arrays: what is refused says why, in one line that a terminal may have; what is taken makes arrays whose names
// differ and whose elements are as many as before, or fewer.
#include "tests/fuzz/replay.h"

#include "core/base/util.h"
#include "core/view/array_rules.h"
#include "tests/support/array_files.h"

#include <string.h>

static struct ckpt_bytes file;
static struct ckpt_catalog *catalog;

static int open_file(void *arg, const char *path, struct ckpt_source *ret_source)
{
	(void)arg;
	(void)path;
	*ret_source = ckpt_bytes_source(&file);
	return 0;
}

static void close_file(void *arg, struct ckpt_source *source)
{
	(void)arg;
	(void)source;
}

static int no_file(void *arg, const char *dir, int (*fn)(void *, const char *, uint64_t), void *fn_arg)
{
	(void)arg;
	(void)dir;
	(void)fn;
	(void)fn_arg;
	return 0;
}

static const struct ckpt_catalog_files files = {.open = open_file, .close = close_file, .each = no_file};

static void begin(void)
{
	ckpt_sample_safetensors(&file,
				"{\"layers.0.w\":{\"dtype\":\"F32\",\"shape\":[4,6],\"data_offsets\":[0,96]},"
				"\"layers.1.w\":{\"dtype\":\"F32\",\"shape\":[4,6],\"data_offsets\":[96,192]},"
				"\"layers.10.w\":{\"dtype\":\"F32\",\"shape\":[4,6],\"data_offsets\":[192,288]},"
				"\"head\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[288,290]},"
				"\"ids\":{\"dtype\":\"I8\",\"shape\":[0,3],\"data_offsets\":[290,290]}}",
				290);
	fuzz_assert(!ckpt_catalog_new(&catalog) && !ckpt_catalog_read(catalog, &files, "m.safetensors") &&
		    !ckpt_catalog_end(catalog) && ckpt_catalog_count(catalog) == 5);
}

static void check_why(const char *why)
{
	fuzz_assert(*why && strlen(why) < CKPT_RULES_WHY_MAX);
	for (; *why; why++)
		fuzz_assert((unsigned char)*why >= 0x20 && (unsigned char)*why != 0x7f);
}

static void check_list(const struct ckpt_array_list *l)
{
	for (size_t i = 0; i < l->count; i++) {
		fuzz_assert(*l->at[i].name && l->at[i].expr);
		fuzz_assert(!i || strcmp(l->at[i - 1].name, l->at[i].name) < 0);
	}
}

static void apply(const struct ckpt_array_rules *r)
{
	struct ckpt_array_rules_telling t = {.why = ""};
	struct ckpt_array_list list = {0};
	int rc;

	for (size_t i = 0; i < ckpt_catalog_count(catalog); i++) {
		struct ckpt_catalog_array a;
		struct ckpt_expr *e;

		ckpt_catalog_get(catalog, i, &a);
		fuzz_assert(!ckpt_expr_array(catalog, i, &files, &e));
		fuzz_assert(!ckpt_array_list_add(&list, a.name, a.tree, a.name, e));
		ckpt_expr_unref(e);
	}
	rc = ckpt_array_rules_apply(r, &list, &t);
	fuzz_assert(!rc || rc == -EINVAL);
	if (rc)
		check_why(t.why);
	else if (ckpt_array_rules_count(r))
		check_list(&list);
	ckpt_array_list_done(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char why[CKPT_RULES_WHY_MAX] = "";
	struct ckpt_array_rules *r;
	int rc;

	if (!catalog)
		begin();
	rc = ckpt_array_rules_parse((const char *)data, len, why, &r);
	fuzz_assert(!rc || rc == -EINVAL);
	if (rc) {
		check_why(why);
		return 0;
	}
	apply(r);
	ckpt_array_rules_free(r);
	return 0;
}
