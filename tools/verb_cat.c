#include "tools/verb.h"

#include "core/util.h"
#include "tools/listing.h"
#include "tools/output.h"

#include <fcntl.h>
#include <sys/sendfile.h>

#define COPY_BYTES (1u << 20)

// By the kernel where stdout takes it, else by hand. A reader that has gone is no failure to speak of.
static int copy_to_stdout(int fd, const char *what)
{
	CLEANUP_FREE char *buf = NULL;
	ssize_t n;

	while ((n = sendfile(STDOUT_FILENO, fd, NULL, 64 * COPY_BYTES)) > 0)
		;
	if (n < 0 && (errno == EINVAL || errno == ENOSYS)) {
		buf = ckpt_need(malloc(COPY_BYTES));
		while ((n = read(fd, buf, COPY_BYTES)) > 0)
			for (ssize_t done = 0, put; done < n; done += put) {
				put = write(STDOUT_FILENO, buf + done, (size_t)(n - done));
				if (put < 0)
					return errno == EPIPE ? 1 : ckpt_fail_errno("standard output", NULL, errno);
			}
	}
	if (n < 0 && errno == EPIPE)
		return 1;
	return n < 0 ? ckpt_fail_errno(what, NULL, errno) : 0;
}

static int cat_entry(struct ckpt_step *step, struct ckpt_manifest *m, const char *path, const char *what)
{
	CLEANUP_FREE char *hint = NULL;
	CLEANUP_FD int fd = -1;
	struct ckpt_entry e;
	uint32_t index;
	int rc = ckpt_manifest_lookup(m, path, &index);

	if (rc)
		return ckpt_fail_errno(what, "`ckptfs ls STORE STEP` lists its files", rc);
	ckpt_manifest_entry(m, index, &e);
	if (e.type == CKPT_ENTRY_DIR)
		return ckpt_fail(what, "`ckptfs ls STORE STEP/PATH` lists it", "is a directory");
	if (e.type == CKPT_ENTRY_SYMLINK) {
		hint = ckpt_text("it leads to %s", e.target);
		return ckpt_fail(what, hint, "is a symbolic link");
	}
	if (!e.bytes)
		return 0;
	rc = ckpt_step_open_raw(step, m, index, &fd);
	if (rc)
		return ckpt_fail(what, "`ckptfs verify` says what is damaged", "cannot be read: %s", strerror(-rc));
	return copy_to_stdout(fd, what);
}

int ckpt_verb_cat(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP PATH",
		.doc = "Writes the bytes of a file of a step to stdout.\v"
		       "Examples:\n"
		       "  ckptfs cat /data/run42 latest config.json\n"
		       "  ckptfs cat /ckpt/1000/model.safetensors > model.safetensors",
		.operands_min = 1,
		.operands_max = 3,
		.no_json = true,
	};
	CLEANUP_FREE char *path = NULL, *word = NULL;
	struct ckpt_listing l;
	struct ckpt_operand o;
	struct ckpt_words words;
	struct ckpt_manifest *m = NULL;
	struct ckpt_step *step = NULL;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	if (!o.count || o.count > 2) {
		ckpt_operand_done(&o);
		return ckpt_usage("cat", "usage: ckptfs cat [STORE] STEP PATH", "wants a step and a path in it");
	}
	word = o.count == 2 ? ckpt_text("%s/%s", o.steps[0], o.steps[1]) : ckpt_text("%s", o.steps[0]);
	rc = ckpt_listing_open(o.store, CKPT_STORE_READ, &l);
	if (!rc) {
		rc = ckpt_listing_find(&l, &o, word, &step, &path);
		if (!rc) {
			rc = ckpt_step_manifest(step, &m);
			if (rc)
				rc = ckpt_fail(word, "`ckptfs verify` says what is damaged",
					       "its manifest cannot be read: %s", strerror(-rc));
			else
				rc = cat_entry(step, m, path, word);
		}
		ckpt_manifest_unref(m);
		ckpt_step_unref(step);
		ckpt_listing_close(&l);
	}
	ckpt_operand_done(&o);
	return rc;
}
