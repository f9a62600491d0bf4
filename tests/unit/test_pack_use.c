// What of packs is used, and what is garbage: each chunk is counted once, however many steps have it, and where something cannot be
// read, nothing is said.
#include "tests/support/fixture_sharing.h"

#include "core/cold/pack_use.h"
#include "core/save/delete.h"

static struct ckpt_pack_use use_of(struct ckpt_step *const *steps, size_t count, const struct ckpt_pack *pack)
{
	struct ckpt_pack_use u = {0};

	ck_ok(ckpt_pack_use_pack(&u, pack));
	for (size_t i = 0; i < count; i++) {
		struct ckpt_manifest *m = ckpt_staged_manifest(steps[i]);

		ck_ok(ckpt_pack_use_add(&u, m));
		ckpt_manifest_unref(m);
	}
	return u;
}

START_TEST(what_is_used_is_counted_once)
{
	struct ckpt_chunk chunk;
	struct ckpt_pack pack = ckpt_packed_place(a, "0", &chunk);
	struct ckpt_step *const two[] = {b, c}, *const three[] = {c, a, b, a};
	struct ckpt_pack_use some = use_of(two, 2, &pack), whole = use_of(three, 4, &pack),
			     none = use_of(two, 0, &pack);
	uint64_t unused;

	ck_assert_uint_eq(some.packs->used_bytes, strlen(SHARED));
	ck_assert_uint_eq(some.packs->used_chunks, 1);
	ck_ok(ckpt_pack_use_unused(some.packs, s->objects, &unused));
	ck_assert_uint_eq(unused, strlen(LONG_1) + strlen(LONG_2));
	ck_assert_uint_eq(whole.packs->used_bytes, strlen(LONG_1) + strlen(LONG_2) + strlen(SHARED));
	ck_assert_uint_eq(whole.packs->used_chunks, 3);
	ck_ok(ckpt_pack_use_unused(whole.packs, s->objects, &unused));
	ck_assert_uint_eq(unused, 0);
	ck_ok(ckpt_pack_use_unused(none.packs, s->objects, &unused));
	ck_assert_uint_eq(unused, pack.bytes);
	ckpt_pack_use_done(&some);
	ckpt_pack_use_done(&whole);
	ckpt_pack_use_done(&none);
}
END_TEST

START_TEST(garbage_is_what_no_step_needs)
{
	uint64_t packs = ckpt_packs_bytes(s);

	ck_assert_uint_eq(garbage(), 0);
	ck_ok(ckpt_delete(a));
	ck_assert_uint_eq(garbage(), 0); // it can be had back
	ck_ok(ckpt_expire(a));
	ck_assert_uint_eq(garbage(), strlen(LONG_1) + strlen(LONG_2));
	expire(b);
	expire(c);
	ck_assert_uint_eq(garbage(), packs);
}
END_TEST

START_TEST(a_pack_without_its_tail_leaves_garbage_unknown)
{
	struct ckpt_chunk chunk;
	struct ckpt_pack pack = ckpt_packed_place(b, "1", &chunk);
	uint64_t bytes;

	ckpt_packed_spoil(s, &pack, pack.bytes - 48);
	ck_error(ckpt_pack_use_garbage(s, &bytes), EBADMSG);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pack use");
	TCase *tcase = tcase_create("use");

	tcase_add_checked_fixture(tcase, ckpt_fixture_sharing_open, ckpt_fixture_sharing_close);
	tcase_add_test(tcase, what_is_used_is_counted_once);
	tcase_add_test(tcase, garbage_is_what_no_step_needs);
	tcase_add_test(tcase, a_pack_without_its_tail_leaves_garbage_unknown);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
