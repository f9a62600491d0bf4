// Arrays of files written in another format, for tests in another language.
//
//	export FORMAT SHARD_BYTES DTYPE DIR OUT FILE...
//	          reads the files, whose paths are below DIR, and writes their arrays below OUT, which is there. DTYPE: "-" for none.
//	          Ends with 1 and a line on stderr where that fails; what is left out is on stdout.
#include "core/array/write_folder.h"
#include "core/base/util.h"
#include "core/view/export.h"
#include "tests/interop/folder_files.h"

#include <fcntl.h>
#include <stdio.h>

static void left_out(void *arg __attribute__((unused)), const struct ckpt_catalog_array *a, const char *why)
{
	printf("%s:%s: %s\n", a->tree, a->name, why);
}

int main(int argc, char **argv)
{
	struct ckpt_export e = {.left_out = left_out};
	struct ckpt_catalog_files files;
	struct ckpt_catalog *c;
	struct ckpt_write_target target;
	int top, out, rc;

	if (argc < 7)
		return 2;
	top = open(argv[4], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	out = open(argv[5], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (top < 0 || out < 0)
		return 2;
	files = ckpt_folder_files(&top);
	target = ckpt_write_folder(&out);
	rc = ckpt_catalog_new(&c);
	for (int i = 6; i < argc && !rc; i++)
		rc = ckpt_catalog_read(c, &files, argv[i]);
	if (!rc)
		rc = ckpt_catalog_end(c);
	e.catalog = c;
	e.files = &files;
	e.format = argv[1];
	e.shard_bytes = strtoull(argv[2], NULL, 10);
	e.dtype = ckpt_export_dtype(argv[3]);
	if (!rc)
		rc = ckpt_export_plan(&e);
	if (!rc)
		rc = ckpt_export_write(&e, &target);
	if (rc)
		fprintf(stderr, "%s: %s\n", strerrorname_np(-rc), e.why);
	ckpt_export_done(&e);
	ckpt_catalog_free(c);
	return rc != 0;
}
