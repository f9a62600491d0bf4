// HDF5, byte by byte: right files, failures, and files that lie in others. Damage is in test_catalog_hdf5_damage.c; files of h5py are
// compared in tests/interop/test_catalog_hdf5.py.
#include "tests/support/allocfault.h"
#include "tests/support/hdf5_files.h"

START_TEST(a_symbol_table_has_a_dataset_of_chunks)
{
	static const uint8_t codecs[3][CKPT_PIECE_CODECS_MAX] = {
		{CKPT_PIECE_ZLIB, CKPT_PIECE_SHUFFLE4}, {CKPT_PIECE_ZLIB}, {CKPT_PIECE_RAW}};
	struct ckpt_catalog_array a;

	put_old();
	read_file();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(ckpt_catalog_count(c), 3);
	a = find("d");
	ck_assert(!a.why && a.dtype == CKPT_DTYPE_I32 && a.ndim == 1 && a.shape[0] == 10 && a.pieces == 3);
	ck_assert(!strcmp(a.tree, "a.h5") && !strcmp(a.format, "hdf5"));
	ck_assert_mem_eq(a.fill, "\7\0\0\0", 4);
	for (size_t i = 0; i < 3; i++) {
		struct ckpt_piece p = piece_of("d", i);

		ck_assert_mem_eq(p.codecs, codecs[i], sizeof(p.codecs));
		ck_assert(p.offset == OLD_DATA + 12 * i && p.start[0] == 4 * i && p.extent[0] == (i < 2 ? 4 : 2));
	}
	ck_assert(strstr(find("g").why, "second link"));
	ck_assert(strstr(find("s").why, "soft link"));
}
END_TEST

START_TEST(links_have_datasets_of_each_layout)
{
	static const struct {
		const char *name;
		uint64_t elements, pieces, offset;
	} rows[] = {
		{"p", 8, 1, NEW_DATA},
		{"P", 8, 1, NEW_DATA},
		{"f", 3, 3, NEW_DATA},
		{"x", 6, 5, NEW_DATA},
		{"c", 3, 1, NEW_COMPACT + 7 + 4 + 20 + 4 + 12 + 4 + 4},
	};

	put_new();
	read_file();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(ckpt_catalog_count(c), 7);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct ckpt_catalog_array a = find(rows[i].name);

		ck_assert_msg(!a.why && a.dtype == CKPT_DTYPE_U8 && a.shape[0] == rows[i].elements, "%s", a.name);
		ck_assert_uint_eq(a.pieces, rows[i].pieces);
		ck_assert_uint_eq(piece_of(a.name, 0).offset, rows[i].offset);
	}
	ck_assert_uint_eq(piece_of("f", 2).offset, NEW_DATA + 2);
	ck_assert(piece_of("x", 1).start[0] == 2 && piece_of("x", 4).offset == NEW_DATA + 5 && find("x").fill);
	ck_assert(!find("p").fill && !memcmp(file.data + piece_of("c", 0).offset, "abc", 3));
	ck_assert(strstr(find("r").why, "second link"));
	ck_assert(strstr(find("e").why, "another file"));
}
END_TEST

START_TEST(records_of_a_tree_have_chunks)
{
	bool seen[5] = {false};

	put_records();
	read_file();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(ckpt_catalog_count(c), 1);
	ck_assert_uint_eq(find("").pieces, 5);
	for (size_t k = 0; k < 5; k++) {
		struct ckpt_piece p = piece_of("", k);

		ck_assert_uint_lt(p.start[0], 5);
		ck_assert_uint_eq(p.offset, TREE_DATA + p.start[0]);
		ck_assert(!seen[p.start[0]]);
		seen[p.start[0]] = true;
	}
}
END_TEST

// --- Failures ---------------------------------------------------------------------------------------------------------

START_TEST(what_the_source_says_is_told)
{
	for (int which = 0; which < 3; which++) {
		puts_of[which]();
		for (file.fails_at = 1; ckpt_catalog_of_bytes(&file, "a.h5", &c); file.fails_at++)
			ck_error(ckpt_catalog_of_bytes(&file, "a.h5", &c), EIO);
		ck_assert_uint_gt(file.fails_at, 2);
		ckpt_catalog_free(TAKE_PTR(c));
		file.fails_at = 0;
	}
}
END_TEST

START_TEST(without_memory_nothing_is_said)
{
	for (int which = 0; which < 3; which++) {
		puts_of[which]();
		for (uint64_t k = 1;; k++) {
			int rc;

			ckpt_allocfault_begin(k, false);
			rc = ckpt_catalog_of_bytes(&file, "a.h5", &c);
			if (ckpt_allocfault_end() < k) {
				ck_ok(rc);
				ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
				ckpt_catalog_free(TAKE_PTR(c));
				break;
			}
			ck_error(rc, ENOMEM);
		}
	}
}
END_TEST

// --- Other files ------------------------------------------------------------------------------------------------------

START_TEST(bytes_of_the_user_may_stand_in_front)
{
	static const size_t places[] = {512, 1024, 4096};
	struct ckpt_catalog_fault f;

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		struct ckpt_bytes inner;

		put_old();
		inner = file;
		file = (struct ckpt_bytes){0};
		ckpt_bytes_fill(&file, places[i], 1);
		ckpt_bytes_add(&file, inner.data, inner.len);
		free(inner.data);
		read_file();
		ck_assert_uint_eq(piece_of("d", 0).offset, places[i] + OLD_DATA);
		teardown();
	}
	read_file(); // an empty one
	ck_assert_uint_eq(ckpt_catalog_count(c), 0);
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
	ckpt_catalog_fault(c, 0, &f);
	ck_assert(!strcmp(f.field, "file") && strstr(f.reason, "empty"));
	ckpt_bytes_fill(&file, 4096, 1);
	read_file();
	ck_assert_uint_eq(ckpt_catalog_count(c), 0);
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
	ckpt_catalog_fault(c, 0, &f);
	ck_assert(!strcmp(f.file, "a.h5") && !strcmp(f.field, "superblock") && strstr(f.reason, "signature"));
}
END_TEST

START_TEST(keras_has_its_weights_in_a_zip)
{
	struct ckpt_bytes inner;

	for (int method = 0; method < 9; method += 8) {
		struct ckpt_zip_sample z;

		put_old();
		inner = file;
		file = (struct ckpt_bytes){0};
		ckpt_sample_zip_begin(&z, &file);
		ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "config.json", .data = "{}", .len = 2});
		ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "model.weights.h5",
								.data = inner.data,
								.len = inner.len,
								.method = (uint16_t)method});
		ckpt_sample_zip_end(&z, false);
		read_file();
		if (method) {
			ck_assert(strstr(find("model.weights.h5").why, "compressed"));
		} else {
			uint64_t offset = piece_of("d", 0).offset - OLD_DATA;

			ck_assert_mem_eq(file.data + offset, "\x89HDF", 4);
		}
		free(inner.data);
		teardown();
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("catalog_hdf5");
	TCase *t = tcase_create("catalog_hdf5");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, a_symbol_table_has_a_dataset_of_chunks);
	tcase_add_test(t, links_have_datasets_of_each_layout);
	tcase_add_test(t, records_of_a_tree_have_chunks);
	tcase_add_test(t, what_the_source_says_is_told);
	tcase_add_test(t, without_memory_nothing_is_said);
	tcase_add_test(t, bytes_of_the_user_may_stand_in_front);
	tcase_add_test(t, keras_has_its_weights_in_a_zip);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
