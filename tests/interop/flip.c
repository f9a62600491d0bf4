// Damage to one file, for tests in another language.
//
//	flip FILE STEP        changes a bit of each STEPth byte of the file, one at a time, in memory. Each time the catalog has a fault that
//	                      names the file and a field, or it is the same as that of the whole file. Prints one line of JSON:
//	                      {"faults": {FIELD: COUNT}, "same": COUNT, "silent": [PLACE...]}. Ends with assert() where a call fails.
#include "tests/support/catalog_files.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static void load(const char *path, struct ckpt_bytes *ret_file)
{
	FILE *f = fopen(path, "rbe");
	uint8_t buf[65536];
	size_t n;

	assert(f);
	while ((n = fread(buf, 1, sizeof(buf), f)))
		ckpt_bytes_add(ret_file, buf, n);
	assert(!ferror(f) && !fclose(f));
}

static void count(json_t *counts, const char *field)
{
	json_object_set_new(counts, field, json_integer(json_integer_value(json_object_get(counts, field)) + 1));
}

int main(int argc, char **argv)
{
	json_t *faults = json_object(), *silent = json_array(), *all;
	struct ckpt_catalog *good, *c;
	struct ckpt_bytes file = {0};
	const char *name;
	long step, same = 0;

	assert(argc == 3);
	step = atol(argv[2]);
	name = strrchr(argv[1], '/') ? strrchr(argv[1], '/') + 1 : argv[1];
	load(argv[1], &file);
	assert(step > 0 && !ckpt_catalog_of_bytes(&file, name, &good));
	assert(ckpt_catalog_count(good) && !ckpt_catalog_faults(good));
	for (size_t place = 0; place < file.len; place += (size_t)step) {
		uint8_t bit = (uint8_t)(1u << place % 8);
		struct ckpt_catalog_fault f;

		file.data[place] ^= bit;
		assert(!ckpt_catalog_of_bytes(&file, name, &c));
		file.data[place] ^= bit;
		if (ckpt_catalog_faults(c)) {
			ckpt_catalog_fault(c, 0, &f);
			assert(!strcmp(f.file, name) && *f.field && *f.reason);
			count(faults, f.field);
		} else if (ckpt_same_catalogs(good, c)) {
			same++;
		} else {
			json_array_append_new(silent, json_integer((json_int_t)place));
		}
		ckpt_catalog_free(c);
	}
	all = json_pack("{s:o, s:I, s:o}", "faults", faults, "same", (json_int_t)same, "silent", silent);
	assert(all);
	json_dumpf(all, stdout, JSON_COMPACT);
	puts("");
	json_decref(all);
	ckpt_catalog_free(good);
	free(file.data);
	return 0;
}
