// Whose files a checkpoint of DeepSpeed lacks, by what the first rank says of how many there are.
#include "tests/support/array_files.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/profile/ranks.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int dirfd;

static void setup(void)
{
	dirfd = ckpt_temp_fd();
}

static void put(const char *name, const void *data, size_t len)
{
	CLEANUP_FD int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, data, len), (ssize_t)len);
}

// As torch.save() has it, with this as its pickle.
static void put_pickle(const char *name, const void *pickle, size_t len)
{
	struct ckpt_bytes b = {0};
	struct ckpt_zip_sample z;

	ckpt_sample_zip_begin(&z, &b);
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "archive/data.pkl", .data = pickle, .len = len});
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "archive/version", .data = "3\n", .len = 2});
	ckpt_sample_zip_end(&z, false);
	put(name, b.data, b.len);
	free(b.data);
}

static void key(struct ckpt_bytes *b, const char *name, const char *memo, size_t memo_len)
{
	ckpt_bytes_text(b, "X");
	ckpt_bytes_number(b, strlen(name), 4);
	ckpt_bytes_text(b, name);
	ckpt_bytes_add(b, memo, memo_len);
}

// The state of a rank: behind so many other bytes, numbers in as many bytes as pickle takes for them.
static void put_state(const char *name, unsigned dp, unsigned mp, size_t behind)
{
	static const char other[] = "X\r\0\0\0dp_world_sizeq>K\5";
	struct ckpt_bytes b = {0};

	ckpt_bytes_add(&b, "\x80\x03}q\0(U\5other", 13);
	ckpt_bytes_text(&b, "B"); // its bytes say nothing, whatever they are
	ckpt_bytes_number(&b, sizeof(other) - 1 + behind, 4);
	ckpt_bytes_add(&b, other, sizeof(other) - 1);
	ckpt_bytes_fill(&b, behind, 7);
	key(&b, "dp_world_size", "q>", 2);
	ckpt_bytes_text(&b, dp < 256 ? "K" : dp < 65536 ? "M" : "J");
	ckpt_bytes_number(&b, dp, dp < 256 ? 1 : dp < 65536 ? 2 : 4);
	key(&b, "mp_world_size", "r\1\2\0\0", 5);
	ckpt_bytes_text(&b, "K");
	ckpt_bytes_number(&b, mp, 1);
	ckpt_bytes_text(&b, "u.");
	put_pickle(name, b.data, b.len);
	free(b.data);
}

static void put_other(const char *name)
{
	put_pickle(name, "N.", 2);
}

// What it lacks; "" nothing, or an errno's text.
static const char *lacking(void)
{
	static char name[CKPT_NAME_MAX + 1];
	int rc = ckpt_ranks_lack(dirfd, true, name);

	return rc < 0 ? strerror(-rc) : rc ? name : "";
}

START_TEST(each_rank_of_zero_is_waited_for)
{
	const char *prefix = _i ? "bf16_" : "";
	char name[64];

	put_state("mp_rank_00_model_states.pt", 3, 1, 0);
	for (int rank = 0; rank < 3; rank += 2) {
		snprintf(name, sizeof(name), "%szero_pp_rank_%d_mp_rank_00_optim_states.pt", prefix, rank);
		put_other(name);
	}
	snprintf(name, sizeof(name), "%szero_pp_rank_1_mp_rank_00_optim_states.pt", prefix);
	ck_assert_str_eq(lacking(), name);
	put(name, "PK\3\4 it is being written", 20);
	ck_assert_str_eq(lacking(), name);
	put_other(name);
	ck_assert_str_eq(lacking(), "");
}
END_TEST

START_TEST(each_model_parallel_rank_is_waited_for)
{
	put_state("mp_rank_00_model_states.pt", 2, 2, 0);
	ck_assert_str_eq(lacking(), "mp_rank_01_model_states.pt");
	put_other("mp_rank_01_model_states.pt");
	ck_assert_str_eq(lacking(), ""); // without ZeRO there are no others
	put_other("zero_pp_rank_0_mp_rank_00_optim_states.pt");
	put_other("zero_pp_rank_1_mp_rank_00_optim_states.pt");
	put_other("zero_pp_rank_1_mp_rank_01_optim_states.pt");
	ck_assert_str_eq(lacking(), "zero_pp_rank_0_mp_rank_01_optim_states.pt");
}
END_TEST

START_TEST(with_stage_3_each_rank_has_two)
{
	put_state("zero_pp_rank_0_mp_rank_00_model_states.pt", 2, 1, 0);
	put_other("zero_pp_rank_0_mp_rank_00_optim_states.pt");
	put_other("zero_pp_rank_1_mp_rank_00_optim_states.pt");
	ck_assert_str_eq(lacking(), "zero_pp_rank_1_mp_rank_00_model_states.pt");
	put_other("zero_pp_rank_1_mp_rank_00_model_states.pt");
	ck_assert_str_eq(lacking(), "");
}
END_TEST

START_TEST(numbers_are_found_wherever_they_stand)
{
	static const size_t behind[] = {(1u << 20) - 90, (1u << 20) - 30, (1u << 20) - 8, (1u << 20) - 1, 3u << 20};

	char name[64] = "";

	put_state("mp_rank_00_model_states.pt", _i % 2 ? 300 : 70000, 1, behind[_i / 2]);
	for (unsigned rank = 0; _i % 2 && rank < 299; rank++) {
		snprintf(name, sizeof(name), "zero_pp_rank_%u_mp_rank_00_optim_states.pt", rank);
		put_other(name);
	}
	if (!*name)
		put_other("zero_pp_rank_0_mp_rank_00_optim_states.pt");
	ck_assert_str_eq(lacking(), *name ? "zero_pp_rank_299_mp_rank_00_optim_states.pt"
					  : "zero_pp_rank_1_mp_rank_00_optim_states.pt");
}
END_TEST

START_TEST(what_cannot_be_understood_says_nothing)
{
	static const char cut[] = "X\r\0\0\0dp_world_sizeq>",
			  none[] = "X\r\0\0\0dp_world_sizeq>X\r\0\0\0mp_world_sizeq?K\1";

	ck_assert_str_eq(lacking(), "");
	put_other("zero_pp_rank_1_mp_rank_00_optim_states.pt");
	ck_assert_str_eq(lacking(), "");
	put("mp_rank_00_model_states.pt", "text", 4);
	ck_assert_str_eq(lacking(), "");
	put_pickle("mp_rank_00_model_states.pt", cut, sizeof(cut) - 1);
	ck_assert_str_eq(lacking(), "");
	put_pickle("mp_rank_00_model_states.pt", none, sizeof(none) - 1);
	ck_assert_str_eq(lacking(), "");
	put_state("mp_rank_00_model_states.pt", 0x7fffffff, 255, 0);
	ck_assert_str_eq(lacking(), "");
	put_state("mp_rank_00_model_states.pt", 0, 1, 0);
	ck_assert_str_eq(lacking(), "");
	unlinkat(dirfd, "mp_rank_00_model_states.pt", 0);
	ck_assert_int_eq(mkdirat(dirfd, "mp_rank_00_model_states.pt", 0755), 0);
	ck_assert_str_eq(lacking(), "");
}
END_TEST

static void set_time(const char *name, time_t s)
{
	ck_assert_int_eq(utimensat(dirfd, name, (struct timespec[]){{s, 5}, {s, 5}}, 0), 0);
}

START_TEST(what_an_earlier_save_left_is_not_that_of_this_one)
{
	put_state("mp_rank_00_model_states.pt", 2, 1, 0);
	put_other("zero_pp_rank_0_mp_rank_00_optim_states.pt");
	put_other("zero_pp_rank_1_mp_rank_00_optim_states.pt");
	set_time("mp_rank_00_model_states.pt", 1000);
	set_time("zero_pp_rank_0_mp_rank_00_optim_states.pt", 1000);
	set_time("zero_pp_rank_1_mp_rank_00_optim_states.pt", 999);
	ck_assert_str_eq(lacking(), "zero_pp_rank_1_mp_rank_00_optim_states.pt");
	set_time("zero_pp_rank_0_mp_rank_00_optim_states.pt", 999);
	set_time("zero_pp_rank_1_mp_rank_00_optim_states.pt", 1001);
	ck_assert_str_eq(lacking(), "zero_pp_rank_0_mp_rank_00_optim_states.pt");
	set_time("zero_pp_rank_0_mp_rank_00_optim_states.pt", 1000);
	ck_assert_str_eq(lacking(), "");
}
END_TEST

// Of more ranks, of another type of numbers, of another stage.
START_TEST(what_an_earlier_save_of_another_kind_left_is_nobodys)
{
	put_state("mp_rank_00_model_states.pt", 2, 1, 0);
	for (int rank = 0; rank < 4; rank++) {
		char name[64];

		snprintf(name, sizeof(name), "zero_pp_rank_%d_mp_rank_00_optim_states.pt", rank);
		put_other(name);
	}
	put("zero_pp_rank_3_mp_rank_00_optim_states.pt", "PK\3\4 it is cut", 14);
	ck_assert_str_eq(lacking(), "");
	set_time("mp_rank_00_model_states.pt", 1000);
	set_time("zero_pp_rank_0_mp_rank_00_optim_states.pt", 990);
	put_other("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
	ck_assert_str_eq(lacking(), "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
	put_other("bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
	ck_assert_str_eq(lacking(), "");
	put_state("zero_pp_rank_0_mp_rank_00_model_states.pt", 3, 1, 0);
	ck_assert_str_eq(lacking(), "zero_pp_rank_1_mp_rank_00_model_states.pt");
}
END_TEST

static void put_settings(const char *key_name, const char *value, size_t len)
{
	struct ckpt_bytes b = {0};

	ckpt_bytes_text(&b, "\x80\x02}(");
	key(&b, "dp_world_size", "q>", 2);
	ckpt_bytes_text(&b, "K\2");
	key(&b, "mp_world_size", "q?", 2);
	ckpt_bytes_text(&b, "K\1");
	key(&b, "ds_config", "qA", 2);
	ckpt_bytes_text(&b, "}(");
	key(&b, key_name, "q@", 2);
	ckpt_bytes_add(&b, value, len);
	ckpt_bytes_text(&b, "uu.");
	put_pickle("mp_rank_00_model_states.pt", b.data, b.len);
	free(b.data);
}

START_TEST(where_some_ranks_write_nothing_there_is_no_telling)
{
	const char *want = "zero_pp_rank_1_mp_rank_00_optim_states.pt";

	put_settings("use_node_local_storage", "\x88", 1);
	put_other("zero_pp_rank_0_mp_rank_00_optim_states.pt");
	ck_assert_str_eq(lacking(), "");
	put_settings("mics_shard_size", "K\4", 2);
	put_other("zero_pp_rank_0_mp_rank_00_optim_states.pt");
	ck_assert_str_eq(lacking(), "");
	put_settings("mics_shard_size", "J\xff\xff\xff\xff", 5);
	put_other("zero_pp_rank_0_mp_rank_00_optim_states.pt");
	ck_assert_str_eq(lacking(), want);
	put_settings("use_node_local_storage", "\x89", 1);
	put_other("zero_pp_rank_0_mp_rank_00_optim_states.pt");
	ck_assert_str_eq(lacking(), want);
}
END_TEST

START_TEST(what_is_no_file_of_a_rank_is_no_error)
{
	put_state("mp_rank_00_model_states.pt", 2, 1, 0);
	put_other("zero_pp_rank_0_mp_rank_00_optim_states.pt");
	ck_assert_int_eq(symlinkat("/etc/passwd", dirfd, "zero_pp_rank_1_mp_rank_00_optim_states.pt"), 0);
	ck_assert_str_eq(lacking(), "zero_pp_rank_1_mp_rank_00_optim_states.pt");
	unlinkat(dirfd, "zero_pp_rank_1_mp_rank_00_optim_states.pt", 0);
	ck_assert_int_eq(mkdirat(dirfd, "zero_pp_rank_1_mp_rank_00_optim_states.pt", 0755), 0);
	ck_assert_str_eq(lacking(), "zero_pp_rank_1_mp_rank_00_optim_states.pt");
}
END_TEST

START_TEST(other_names_are_nobodys)
{
	put_state("mp_rank_00_model_states.pt", 2, 1, 0);
	put_other("zero_pp_rank_1_mp_rank_0_optim_states.pt");
	put_other("zero_pp_rank_18446744073709551617_mp_rank_00_optim_states.pt");
	put_other("zero_pp_rank_-1_mp_rank_00_optim_states.pt");
	put_other("layer_0_expert_0_mp_rank_00_model_states.pt");
	put_other("zero_pp_rank_%s_mp_rank_%n_optim_states.pt");
	ck_assert_str_eq(lacking(), "");
	ck_assert_str_eq(lacking(), "");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ranks");
	TCase *tcase = tcase_create("ranks");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, each_rank_of_zero_is_waited_for, 0, 2);
	tcase_add_test(tcase, each_model_parallel_rank_is_waited_for);
	tcase_add_test(tcase, with_stage_3_each_rank_has_two);
	tcase_add_loop_test(tcase, numbers_are_found_wherever_they_stand, 0, 10);
	tcase_add_test(tcase, what_cannot_be_understood_says_nothing);
	tcase_add_test(tcase, what_an_earlier_save_left_is_not_that_of_this_one);
	tcase_add_test(tcase, what_an_earlier_save_of_another_kind_left_is_nobodys);
	tcase_add_test(tcase, where_some_ranks_write_nothing_there_is_no_telling);
	tcase_add_test(tcase, what_is_no_file_of_a_rank_is_no_error);
	tcase_add_test(tcase, other_names_are_nobodys);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
