// Whole arrays of DeepSpeed's ZeRO, of which the files of two ranks have a part each: what the pickles say is hostile, and memory may end.
// tests/interop/test_zero.py compares elements with what DeepSpeed's own script makes.
#include "tests/support/allocfault.h"
#include "tests/support/catalog_files.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>

enum { MODEL, RANK_0, RANK_1, FILES };

static struct ckpt_sample_file files[FILES] = {{.path = "d/mp_rank_00_model_states.pt"},
					       {.path = "d/zero_pp_rank_0_mp_rank_00_optim_states.pt"},
					       {.path = "d/zero_pp_rank_1_mp_rank_00_optim_states.pt"}};
static struct ckpt_catalog *c;
static struct ckpt_bytes pickle;

static void teardown(void)
{
	for (int i = 0; i < FILES; i++) {
		free(files[i].bytes.data);
		files[i].bytes = (struct ckpt_bytes){0};
	}
	free(pickle.data);
	pickle = (struct ckpt_bytes){0};
	ckpt_catalog_free(TAKE_PTR(c));
}

// --- Pickles ----------------------------------------------------------------------------------------------------------

static void say(const char *opcodes)
{
	ckpt_bytes_text(&pickle, opcodes);
}

static void text(const char *s)
{
	say("X");
	ckpt_bytes_number(&pickle, strlen(s), 4);
	say(s);
}

static void number(uint64_t n)
{
	ckpt_bytes_add(&pickle, "\x8a\x08", 2);
	ckpt_bytes_number(&pickle, n, 8);
}

// A flat tensor in a storage of 64 elements.
static void tensor(uint64_t numel)
{
	say("ctorch._utils\n_rebuild_tensor_v2\n((");
	text("storage");
	say("ctorch\nFloatStorage\n");
	text("0");
	text("cpu");
	number(64);
	say("tQ");
	number(0);
	number(numel);
	say("\x85");
	number(1);
	say("\x85\x89)tR");
}

static void scalar(void)
{
	say("ctorch._utils\n_rebuild_tensor_v2\n((");
	text("storage");
	say("ctorch\nFloatStorage\n");
	text("0");
	text("cpu");
	number(64);
	say("tQ");
	number(0);
	say("))\x89)tR");
}

static void begin(void)
{
	pickle.len = 0;
	say("\x80\x02}(");
}

// The pickle is that of the file.
static void end(int file)
{
	struct ckpt_zip_sample z;

	say("u.");
	ckpt_sample_zip_begin(&z, &files[file].bytes);
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "x/data.pkl", .data = pickle.data, .len = pickle.len});
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "x/data/0", .zeros = 256});
	ckpt_sample_zip_end(&z, false);
}

static void begin_model(void)
{
	begin();
	text("shared_params");
	say("}(");
	text("tied");
	text("a");
	say("u");
	text("param_shapes");
	say("](}(");
}

static void shape(const char *name, uint64_t rows, uint64_t columns)
{
	text(name);
	number(rows);
	number(columns);
	say("\x86");
}

static void end_model(void)
{
	say("ue");
	end(MODEL);
}

static void put_model(void)
{
	begin_model();
	shape("a", 3, 7);
	shape("b", 5, 8);
	end_model();
}

static void put_rank(int file, uint64_t ranks, uint64_t numel)
{
	begin();
	text("optimizer_state_dict");
	say("}(");
	text("partition_count");
	number(ranks);
	text("single_partition_of_fp32_groups");
	say("](");
	tensor(numel);
	say("e");
	text("base_optimizer_state");
	say("}(");
	text("state");
	say("}(K");
	ckpt_bytes_add(&pickle, "\0", 1);
	say("}(");
	text("exp_avg");
	tensor(numel);
	say("uuuu");
	end(file);
}

static void put_all(void)
{
	put_model();
	put_rank(RANK_0, 2, 32);
	put_rank(RANK_1, 2, 29);
}

static void read_all(void)
{
	ckpt_catalog_free(TAKE_PTR(c));
	ck_ok(ckpt_catalog_of_files(files, FILES, NULL, &c));
	ckpt_walk_catalog_of(c, files, FILES);
}

// The array of this name in the tree of the folder.
static struct ckpt_catalog_array array_of(const char *name)
{
	struct ckpt_catalog_array a;

	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		ckpt_catalog_get(c, i, &a);
		if (!strcmp(a.tree, "d") && !strcmp(a.name, name))
			return a;
	}
	ck_abort_msg("%s is none of %zu arrays", name, ckpt_catalog_count(c));
}

static void check_why(const char *name, const char *word)
{
	struct ckpt_catalog_array a = array_of(name);

	ck_assert_msg(a.why && strstr(a.why, word), "%s: %s", name, a.why ? a.why : "it can be read");
}

// --- Tests ------------------------------------------------------------------------------------------------------------

START_TEST(the_parts_of_the_ranks_are_one_array)
{
	static const char *const names[] = {"a", "a.exp_avg", "b", "b.exp_avg", "tied"};

	put_all();
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(ckpt_catalog_count(c), ARRAY_LEN(names));
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct ckpt_catalog_array a = array_of(names[i]);

		ck_assert_ptr_null(a.why);
		ck_assert_str_eq(a.format, "deepspeed");
		ck_assert_uint_eq(a.shape[1], *names[i] == 'b' ? 8 : 7);
	}
	// 11 elements of b are in the first rank: one row and a part of another.
	ck_assert_uint_eq(array_of("b").pieces, 4);
}
END_TEST

START_TEST(numbers_beyond_all_reason_are_a_reason)
{
	const uint64_t huge = UINT64_C(1) << 62;

	put_all();
	put_rank(RANK_0, INT32_MAX, 32);
	read_all();
	check_why("a", "missing");
	check_why("b.exp_avg", "missing");

	put_all();
	begin_model();
	shape("a", huge, 1);
	shape("b", huge, 1);
	shape("c", huge, 1);
	shape("d", huge, 1);
	end_model();
	read_all();
	check_why("a", "");
	check_why("d", "");

	put_all();
	begin_model();
	shape("a", huge, huge);
	end_model();
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);

	put_all();
	put_rank(RANK_1, 2, 61);
	read_all();
	check_why("a", "add up");
}
END_TEST

// Long names of one dictionary, in each of many groups.
START_TEST(too_many_parameters_are_refused_and_cost_no_other_array)
{
	struct ckpt_catalog_fault f;

	put_all();
	begin();
	text("param_shapes");
	say("](}(");
	for (int i = 0; i < 1000; i++) {
		char name[201];

		snprintf(name, sizeof(name), "%0200d", i);
		shape(name, 1, 1);
	}
	say("uq\x01");
	for (int i = 0; i < 600; i++)
		say("h\x01");
	say("e");
	end(MODEL);
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 2);
	ckpt_catalog_fault(c, 0, &f);
	ck_assert_str_eq(f.field, "param_shapes");
	ck_assert_uint_eq(ckpt_catalog_count(c), 4); // the parts of the ranks
	ck_assert_uint_le(ckpt_catalog_bytes(c), CKPT_CATALOG_BYTES_MAX + 4096);
}
END_TEST

// --- Many of them -----------------------------------------------------------------------------------------------------

enum { ELEMENTS = 64 }; // of a part

struct many {
	int stage, ranks, params;
	uint64_t rows, columns;
	int states, state_len; // names of this many bytes
};

static void put_states(const struct many *m)
{
	CLEANUP_FREE char *name = calloc((size_t)m->state_len + 1, 1);

	ck_assert_ptr_nonnull(name);
	for (int i = 0; i < m->states; i++) {
		memset(name, 'k', (size_t)m->state_len);
		name[m->state_len - 1] = (char)('0' + i);
		text(name);
		tensor(ELEMENTS);
	}
}

static void put_many_of_rank(const struct many *m)
{
	begin();
	text("optimizer_state_dict");
	say("}(");
	text("partition_count");
	number((uint64_t)m->ranks);
	text(m->stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
	say("](");
	tensor(ELEMENTS);
	say("e");
	text(m->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
	say("}(");
	text("state");
	say("}(K");
	ckpt_bytes_add(&pickle, "\0", 1);
	say("}(");
	put_states(m);
	say("uuuu");
}

// The catalog of a checkpoint with so many ranks.
static void read_many(const struct many *m)
{
	size_t count = (size_t)m->ranks + 1;
	struct ckpt_sample_file *all = calloc(count, sizeof(*all));
	char(*paths)[80] = calloc(count, sizeof(*paths));

	ck_assert(all && paths);
	begin_model();
	for (int i = 0; i < m->params; i++) {
		char name[16];

		snprintf(name, sizeof(name), "p%d", i);
		shape(name, m->rows, m->columns);
	}
	end_model();
	all[0].bytes = files[MODEL].bytes;
	all[0].path = m->stage == 3 ? "d/zero_pp_rank_0_mp_rank_00_model_states.pt" : files[MODEL].path;
	files[MODEL].bytes = (struct ckpt_bytes){0};
	for (size_t i = 1; i < count; i++) {
		snprintf(paths[i], sizeof(paths[i]), "d/zero_pp_rank_%zu_mp_rank_00_optim_states.pt", i - 1);
		all[i].path = paths[i];
		put_many_of_rank(m);
		end(RANK_0);
		all[i].bytes = files[RANK_0].bytes;
		files[RANK_0].bytes = (struct ckpt_bytes){0};
	}
	ck_ok(ckpt_catalog_of_files(all, count, NULL, &c));
	for (size_t i = 0; i < count; i++)
		free(all[i].bytes.data);
	free(all);
	free(paths);
}

static void check_many(const struct many *m)
{
	size_t count = ckpt_catalog_count(c);

	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(count, (size_t)m->params * (size_t)(1 + m->states));
	for (size_t i = 0; i < count; i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(c, i, &a);
		ck_assert_msg(!a.why, "%s: %s", a.name, a.why);
	}
}

START_TEST(a_thousand_ranks_join)
{
	const struct many flat = {2, 1000, 500, ELEMENTS, 2, 3, 10}, split = {3, 200, ELEMENTS, 200, 1, 3, 10};

	read_many(&flat);
	check_many(&flat);
	ckpt_catalog_free(TAKE_PTR(c));
	read_many(&split);
	check_many(&split);
}
END_TEST

// Each parameter is split over each rank, and each lookup of a part compares the long name.
START_TEST(lookups_of_long_names_are_too_much_work)
{
	struct ckpt_catalog_fault f;

	read_many(&(struct many){3, 80, ELEMENTS, 80, 1, 1, 60000});
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
	ckpt_catalog_fault(c, 0, &f);
	ck_assert_str_eq(f.field, "catalog");
	ck_assert_ptr_nonnull(strstr(f.reason, "too much work"));
	ck_assert_uint_eq(ckpt_catalog_count(c), 160); // the parts of the ranks
}
END_TEST

// To try each of them for each parameter takes minutes, which is beyond the time limit of a test.
START_TEST(scalars_of_the_optimizer_are_not_tried_for_each_parameter)
{
	enum { MANY = 40000 };
	char name[16];

	put_all();
	begin_model();
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		shape(name, 1, 1);
	}
	end_model();
	begin();
	text("optimizer_state_dict");
	say("}(");
	text("single_partition_of_fp32_groups");
	say("](");
	tensor(32);
	say("e");
	text("base_optimizer_state");
	say("}(K");
	ckpt_bytes_add(&pickle, "\0", 1);
	say("}(");
	text("s0");
	scalar();
	say("q\x01");
	for (int i = 1; i < MANY; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		text(name);
		say("h\x01");
	}
	say("uuu");
	end(RANK_0);
	ck_ok(ckpt_catalog_of_files(files, FILES, NULL, &c));
	check_why("p0", "");
	check_why("p39999", "");
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
}
END_TEST

START_TEST(without_memory_nothing_is_said)
{
	put_all();
	for (uint64_t n = 1;; n++) {
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_catalog_of_files(files, FILES, NULL, &c);
		if (ckpt_allocfault_end() < n) {
			ck_ok(rc);
			break;
		}
		ck_assert_msg(rc == -ENOMEM, "allocation %llu", (unsigned long long)n);
	}
	ck_assert_uint_eq(ckpt_catalog_count(c), 5);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("zero");
	TCase *t = tcase_create("zero");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, the_parts_of_the_ranks_are_one_array);
	tcase_add_test(t, numbers_beyond_all_reason_are_a_reason);
	tcase_add_test(t, too_many_parameters_are_refused_and_cost_no_other_array);
	tcase_add_test(t, a_thousand_ranks_join);
	tcase_add_test(t, lookups_of_long_names_are_too_much_work);
	tcase_add_test(t, scalars_of_the_optimizer_are_not_tried_for_each_parameter);
	tcase_add_test(t, without_memory_nothing_is_said);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
