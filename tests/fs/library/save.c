// An example for libckptfs: a step is saved, whether the store is mounted or not, and waited for as others would.
//
//	save STORE NAME [METADATA]
//
// What stdin has becomes the step's file model.bin.
#include <ckptfs.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SECOND INT64_C(1000000000)

static int write_model(const char *directory)
{
	char path[4096], buf[65536];
	size_t n;
	FILE *f;
	int rc = 0;

	snprintf(path, sizeof(path), "%s/model.bin", directory);
	f = fopen(path, "we");
	if (!f)
		return -errno;
	while (!rc && (n = fread(buf, 1, sizeof(buf), stdin)) > 0)
		rc = fwrite(buf, 1, n, f) == n ? 0 : -errno;
	return fclose(f) && !rc ? -errno : rc; // a file that is open for writing would hold up the commit
}

static int save_step(struct ckpt *c, const char *name, const char *metadata)
{
	struct ckpt_save *save;
	int rc = ckpt_begin(c, name, 0, &save);

	if (rc)
		return rc;
	rc = write_model(ckpt_save_path(save));
	if (!rc)
		rc = ckpt_save_commit(save, metadata);
	if (rc)
		(void)ckpt_save_abort(save);
	ckpt_save_free(save);
	return rc ? rc : ckpt_wait(c, name, 0, 10 * SECOND);
}

int main(int argc, char **argv)
{
	struct ckpt *c;
	int rc = argc > 2 ? ckpt_open(argv[1], CKPT_CREATE, &c) : -EINVAL;

	if (!rc) {
		rc = save_step(c, argv[2], argc > 3 ? argv[3] : NULL);
		ckpt_close(c);
	}
	if (rc)
		fprintf(stderr, "%s\n", strerror(-rc));
	return rc != 0;
}
