// Hostile pickles without some of their items, which the first byte chooses. What the editor makes is a pickle again, and has the values of
// the one before but for them. Of a torch.save() the second byte makes the file around it, whose arrays are dropped by their names.
#include "tests/fuzz/replay.h"

#include "tests/support/array_files.h"

#include "core/array/pickle_edit.h"
#include "core/base/util.h"
#include "core/view/drop.h"

#include <sys/mman.h>

#define HEAD_BYTES 2

static uint8_t seed;

static bool drops(void *arg, const char *name)
{
	unsigned sum = seed;

	(void)arg;
	while (*name)
		sum = sum * 31 + (uint8_t)*name++;
	return sum % 3 == 0;
}

static void choose(const struct ckpt_pickle *p, uint8_t *cut)
{
	for (ckpt_value v = 0; v < ckpt_pickle_count(p); v++) {
		bool dict = ckpt_value_kind(p, v) == CKPT_VALUE_DICT;

		if (!dict && ckpt_value_kind(p, v) != CKPT_VALUE_LIST)
			continue;
		for (ckpt_item at = ckpt_value_first(p, v); at; at = ckpt_item_next(p, at)) {
			if ((at * 7 + seed) % 5 == 0)
				cut[at / 8] |= (uint8_t)(1u << at % 8);
			if (dict)
				at = ckpt_item_next(p, at);
		}
	}
}

static void edit(const struct ckpt_source *s)
{
	struct ckpt_pickle *was, *now;
	struct ckpt_pickle_fault fault;
	struct ckpt_buffer out;
	uint8_t *cut;
	bool same = false;
	int rc;

	if (ckpt_pickle_read_places(s, 0, s->bytes, &was, &fault))
		return;
	cut = calloc(ckpt_pickle_items(was) / 8 + 1, 1);
	fuzz_assert(cut);
	choose(was, cut);
	rc = ckpt_pickle_edit(s, 0, s->bytes, was, cut, &out);
	fuzz_assert(!rc || rc == -EINVAL);
	if (!rc) {
		struct ckpt_source edited = ckpt_pickle_edited(&out);

		fuzz_assert(!ckpt_pickle_read(&edited, 0, edited.bytes, &now, NULL, &fault));
		fuzz_assert(!ckpt_pickle_compare(was, cut, now, &same) && same);
		ckpt_pickle_free(now);
	}
	ckpt_buffer_done(&out);
	ckpt_pickle_free(was);
	free(cut);
}

static void wrap(struct ckpt_bytes *file, const uint8_t *data, size_t len)
{
	struct ckpt_zip_sample z;

	ckpt_sample_zip_begin(&z, file);
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "a/data.pkl", .data = data, .len = len});
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "a/.storage_alignment", .data = "256", .len = 3});
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "a/data/0", .data = "01234567", .len = 8});
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "a/data/1", .zeros = 4096});
	ckpt_sample_zip_end(&z, false);
}

static void drop(const struct ckpt_source *s)
{
	static int fd = -1;
	const struct ckpt_drop how = {.drops = drops};
	char *why = NULL;
	int rc;

	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	fuzz_assert(fd >= 0 && !ftruncate(fd, 0));
	rc = ckpt_drop_torch(&how, s, fd, &why);
	fuzz_assert(rc == -EBADMSG || (!rc && !why));
	free(why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct ckpt_bytes file;
	struct ckpt_source s;

	if (len < HEAD_BYTES)
		return 0;
	seed = data[0];
	file.len = file.zeros = 0;
	if (data[1] % 3 == 1)
		wrap(&file, data + HEAD_BYTES, len - HEAD_BYTES);
	else
		ckpt_bytes_add(&file, data + HEAD_BYTES, len - HEAD_BYTES);
	s = ckpt_bytes_source(&file);
	if (data[1] % 3)
		drop(&s);
	else
		edit(&s);
	return 0;
}
