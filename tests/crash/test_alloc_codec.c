// core/codec/codec.h with an allocation that fails, each in turn: the call says so, and whatever was made by then is given back.
#include "tests/support/suite.h"

#include "tests/support/allocfault.h"

#include "core/base/util.h"
#include "core/codec/codec.h"

#define BYTES (300u << 10)

struct work {
	uint8_t *plain, *base, *out, *back; // base: twice as long
};

static int encode_and_decode(struct ckpt_codec *c, struct work *w, unsigned width, enum ckpt_codec_id with)
{
	struct ckpt_encoded how = {0};
	int rc;

	memset(w->back, 0, BYTES);
	rc = ckpt_codec_encode_beside(c, w->plain, BYTES, width, with, with ? w->base : NULL, w->out, &how);
	if (!rc)
		rc = ckpt_codec_decode_beside(c, &how, w->out, w->base, w->back, BYTES);
	if (!rc && memcmp(w->back, w->plain, BYTES))
		rc = -EIO;
	return rc;
}

static int body(struct work *w)
{
	struct ckpt_codec *c = NULL;
	int rc = ckpt_codec_new(&c);

	if (rc)
		return rc;
	rc = encode_and_decode(c, w, 2, CKPT_CODEC_NONE);
	if (!rc)
		rc = encode_and_decode(c, w, 1, CKPT_CODEC_NONE);
	if (!rc)
		rc = encode_and_decode(c, w, 4, CKPT_CODEC_DELTA);
	if (!rc)
		rc = encode_and_decode(c, w, 2, CKPT_CODEC_ROUND);
	ckpt_codec_free(c);
	return rc;
}

START_TEST(each_allocation_that_fails_is_told)
{
	struct work w = {malloc(BYTES), malloc(2 * BYTES), malloc(BYTES), malloc(BYTES)};
	uint64_t n, count;
	int rc;

	ck_assert(w.plain && w.base && w.out && w.back);
	for (uint32_t i = 0; i < 2 * BYTES; i += 4)
		ckpt_put32(w.base + i, 0x3c000000 + i * 2654435761u % 0x1000000);
	memcpy(w.plain, w.base, BYTES);
	for (n = 1;; n++) {
		ckpt_allocfault_begin(n, false);
		rc = body(&w);
		count = ckpt_allocfault_end();
		if (count < n)
			break;
		ck_error(rc, ENOMEM);
		ck_ok(body(&w));
	}
	ck_ok(rc);
	ck_assert_uint_ge(n, 6); // the codec, its contexts and what they work in, the second buffer
	free(w.plain);
	free(w.base);
	free(w.out);
	free(w.back);
}
END_TEST

static Suite *alloc_suite(void)
{
	Suite *suite = suite_create("codec allocations");
	TCase *tcase = tcase_create("faults");

	tcase_add_test(tcase, each_allocation_that_fails_is_told);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(alloc_suite());
}
