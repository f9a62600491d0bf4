// Indices of models in several files, and arrays.json: what they say is compared with what the files have.
#include "tests/support/catalog_files.h"
#include "tests/support/suite.h"

#include "core/base/util.h"

#include <stdio.h>

enum { INDEX, ONE, OTHER, FILES };

static struct ckpt_sample_file files[FILES] = {
	{.path = "d/m.safetensors.index.json"}, {.path = "d/m-1.safetensors"}, {.path = "d/m-2.safetensors"}};
static struct ckpt_catalog *c;

static void teardown(void)
{
	for (int i = 0; i < FILES; i++) {
		free(files[i].bytes.data);
		files[i].bytes = (struct ckpt_bytes){0};
	}
	ckpt_catalog_free(TAKE_PTR(c));
}

static void put_text(struct ckpt_bytes *b, const char *text)
{
	b->len = b->zeros = 0;
	ckpt_bytes_text(b, text);
}

static void read_all(void)
{
	ckpt_catalog_free(TAKE_PTR(c));
	ck_ok(ckpt_catalog_of_files(files, FILES, NULL, &c));
	ckpt_walk_catalog_of(c, files, FILES);
}

static struct ckpt_catalog_array array_at(size_t i)
{
	struct ckpt_catalog_array a;

	ck_assert_uint_lt(i, ckpt_catalog_count(c));
	ckpt_catalog_get(c, i, &a);
	return a;
}

static void check_fault(size_t i, const char *field, const char *word)
{
	struct ckpt_catalog_fault f;

	ck_assert_uint_lt(i, ckpt_catalog_faults(c));
	ckpt_catalog_fault(c, i, &f);
	ck_assert_str_eq(f.file, files[INDEX].path);
	ck_assert_msg(!strcmp(f.field, field) && strstr(f.reason, word), "%s: %s", f.field, f.reason);
}

// --- Indices ----------------------------------------------------------------------------------------------------------

static void put_model(const char *index)
{
	static const char header[] = "{\"%s\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}";
	char text[200];

	files[INDEX].path = "d/m.safetensors.index.json";
	put_text(&files[INDEX].bytes, index);
	for (int i = ONE; i <= OTHER; i++) {
		snprintf(text, sizeof(text), header, i == ONE ? "a" : "b.c");
		ckpt_sample_safetensors(&files[i].bytes, text, 8);
	}
}

START_TEST(the_files_of_an_index_are_one_tree)
{
	put_model("{\"metadata\":{},\"weight_map\":{\"a\":\"m-1.safetensors\",\"b.c\":\"m-2.safetensors\"}}");
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(ckpt_catalog_count(c), 2);
	for (size_t i = 0; i < 2; i++) {
		ck_assert_str_eq(array_at(i).tree, "d/m.safetensors");
		ck_assert_ptr_null(array_at(i).why);
	}
}
END_TEST

START_TEST(names_that_are_missing_or_extra_are_told)
{
	put_model("{\"weight_map\":{\"a\":\"m-1.safetensors\",\"x\":\"m-2.safetensors\"}}");
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 2);
	check_fault(0, "Missing", "x, in m-2.safetensors");
	check_fault(1, "Extra", "b.c, in d/m-2.safetensors");
	put_model("{\"weight_map\":{\"a\":\"m-1.safetensors\"}}"); // the other file is no part of it
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_str_eq(array_at(1).tree, "d/m-2.safetensors");
	put_model("{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b.c\":\"m-3.safetensors\"}}");
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 2);
	check_fault(0, "weight_map", "m-3.safetensors is missing");
	check_fault(1, "Missing", "b.c, in m-3.safetensors");
	put_model("{\"weight_map\":{\"a\":\"../d/m-1.safetensors\"}}");
	read_all();
	check_fault(0, "weight_map", "is missing");
}
END_TEST

START_TEST(a_name_that_two_files_have_is_told_once)
{
	put_model("{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}}");
	ckpt_sample_safetensors(&files[OTHER].bytes, "{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}",
				8);
	read_all();
	ck_assert_ptr_null(array_at(0).why);
	ck_assert(array_at(1).why && strstr(array_at(1).why, "same name"));
}
END_TEST

START_TEST(an_index_that_breaks_a_rule_says_where)
{
	static const struct {
		const char *json, *field;
	} wrong[] = {
		{"", "JSON"},
		{"{\"weight_map\":{\"a\":\"f\",\"a\":\"g\"}}", "JSON"},
		{"[]", "weight_map"},
		{"{}", "weight_map"},
		{"{\"weight_map\":[]}", "weight_map"},
		{"{\"weight_map\":{\"a\":1}}", "weight_map"},
		{"{\"weight_map\":{\"a\":null}}", "weight_map"},
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put_model(wrong[i].json);
		read_all();
		ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
		check_fault(0, wrong[i].field, "");
		ck_assert_str_eq(array_at(0).tree, "d/m-1.safetensors");
	}
	put_model("");
	files[INDEX].bytes.zeros = UINT64_C(1) << 40;
	read_all();
	check_fault(0, "JSON", "longer");
}
END_TEST

// --- arrays.json ------------------------------------------------------------------------------------------------------

static void put_descriptor(const char *arrays)
{
	files[INDEX].path = "d/arrays.json";
	put_text(&files[INDEX].bytes, "{\"arrays\":[");
	ckpt_bytes_text(&files[INDEX].bytes, arrays);
	ckpt_bytes_text(&files[INDEX].bytes, "]}");
	put_text(&files[ONE].bytes, "0123456789abcdefghijklmn");
	put_text(&files[OTHER].bytes, "-");
}

#define ARRAY(shape, piece) "{\"name\":\"w\",\"dtype\":\"i8\",\"shape\":" shape ",\"pieces\":[" piece "]}"
#define PIECE(more) "{\"file\":\"m-1.safetensors\"" more "}"

START_TEST(pieces_of_a_descriptor_are_boxes)
{
	struct ckpt_piece p;

	put_descriptor(ARRAY("[4,3]", PIECE(",\"offset\":2,\"start\":[1,0],\"extent\":[2,2],\"strides\":[1,5]")));
	read_all();
	ck_assert(!array_at(0).why && array_at(0).pieces == 1);
	ck_assert_str_eq(array_at(0).tree, "d");
	ckpt_catalog_piece(c, 0, 0, &p);
	ck_assert(p.offset == 2 && p.bytes == 7 && p.start[0] == 1 && p.extent[1] == 2 && p.strides[1] == 5);
	put_descriptor(ARRAY("[4,3]", PIECE("")));
	read_all();
	ckpt_catalog_piece(c, 0, 0, &p);
	ck_assert(!array_at(0).why && p.offset == 0 && p.bytes == 12 && p.strides[0] == 3);
	put_descriptor(ARRAY("[]", PIECE(",\"flat\":[0,1]")) "," ARRAY("[0,4]", PIECE(",\"flat\":[0,0]")));
	read_all();
	ck_assert(array_at(0).pieces == 1 && array_at(1).pieces == 0);
	// An empty list names none.
	put_descriptor(ARRAY("[4]", PIECE(",\"flat\":[0,4],\"strides\":[]")));
	read_all();
	ck_assert(!array_at(0).why && array_at(0).pieces == 1);
}
END_TEST

// Each element of each flat range of a shape is in one box, at its place.
START_TEST(flat_ranges_become_boxes)
{
	const uint64_t shape[] = {2, 3, 4};
	char text[200];

	for (unsigned a = 0; a <= 24; a++) {
		for (unsigned b = a; b <= 24; b++) {
			unsigned seen[24] = {0};
			struct ckpt_piece p;

			snprintf(text, sizeof(text), ARRAY("[2,3,4]", PIECE(",\"flat\":[%u,%u]")), a, b);
			put_descriptor(text);
			read_all();
			ck_assert(!array_at(0).why && array_at(0).pieces <= 5);
			for (size_t k = 0; k < array_at(0).pieces; k++) {
				uint64_t at[3], flat;

				ckpt_catalog_piece(c, 0, k, &p);
				for (at[0] = 0; at[0] < p.extent[0]; at[0]++)
					for (at[1] = 0; at[1] < p.extent[1]; at[1]++)
						for (at[2] = 0; at[2] < p.extent[2]; at[2]++) {
							uint64_t byte = p.offset + p.first;

							flat = 0;
							for (int i = 0; i < 3; i++) {
								flat = flat * shape[i] + p.start[i] + at[i];
								byte += at[i] * p.strides[i];
							}
							ck_assert_uint_eq(byte, flat - a);
							seen[flat]++;
						}
			}
			for (unsigned i = 0; i < 24; i++)
				ck_assert_uint_eq(seen[i], i >= a && i < b);
		}
	}
}
END_TEST

START_TEST(a_descriptor_lists_what_it_cannot_read_with_the_reason)
{
	static const struct {
		const char *array, *why;
	} wrong[] = {
		{ARRAY("[4]", "{}"), "missing"},
		{ARRAY("[4]", "{\"file\":\"x\"}"), "missing"},
		{ARRAY("[4]", "{\"file\":\"../d/m-1.safetensors\"}"), "missing"},
		{ARRAY("[4]", PIECE(",\"offset\":-1")), "offset"},
		{ARRAY("[4]", PIECE(",\"offset\":21")), "outside of its file"},
		{ARRAY("[4]", PIECE(",\"offset\":9223372036854775807")), "outside of its file"},
		{ARRAY("[25]", PIECE("")), "outside of its file"},
		{ARRAY("[4]", PIECE(",\"start\":[1]")), "box"},
		{ARRAY("[4]", PIECE(",\"start\":[-1],\"extent\":[1]")), "box"},
		{ARRAY("[4]", PIECE(",\"start\":[9223372036854775807],\"extent\":[9223372036854775807]")), "box"},
		{ARRAY("[4]", PIECE(",\"start\":[0,0],\"extent\":[1,1]")), "box"},
		{ARRAY("[4]", PIECE(",\"strides\":[9223372036854775807]")), "outside of its file"},
		{ARRAY("[4]", PIECE(",\"strides\":[8]")), "outside of its file"},
		{ARRAY("[4]", PIECE(",\"strides\":[]")), "box"},
		{ARRAY("[4]", PIECE(",\"flat\":[0,5]")), "flat"},
		{ARRAY("[4]", PIECE(",\"flat\":[2,1]")), "flat"},
		{ARRAY("[4]", PIECE(",\"flat\":[0]")), "flat"},
		{ARRAY("[40]", PIECE(",\"flat\":[0,40]")), "outside of its file"},
		{ARRAY("[4]", PIECE(",\"flat\":[0,2],\"strides\":[2]")), "a flat range has no strides"},
		{ARRAY("[2,2]", PIECE(",\"flat\":[0,4],\"strides\":[1,2]")), "a flat range has no strides"},
		{ARRAY("[4]", PIECE(",\"flat\":[0,4],\"strides\":1")), "a flat range has no strides"},
		{ARRAY("[4]", PIECE(",\"flat\":[0,2],\"start\":[2],\"extent\":[2]")), "a flat range has no start"},
		{ARRAY("[4]", PIECE(",\"flat\":[0,2],\"extent\":[2]")), "a flat range has no start"},
		{"{\"name\":\"w\",\"dtype\":\"i4\",\"shape\":[4],\"pieces\":[]}", "byte"},
		{"{\"name\":\"w\",\"dtype\":\"U8\",\"shape\":[4],\"pieces\":[]}", "dtype"},
		{"{\"name\":\"w\",\"shape\":[4],\"pieces\":[]}", "dtype"},
		{"{\"name\":\"w\",\"dtype\":\"i8\",\"shape\":[4]}", "list"},
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put_descriptor(wrong[i].array);
		read_all();
		ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
		ck_assert_msg(array_at(0).why && strstr(array_at(0).why, wrong[i].why), "%zu: %s", i, array_at(0).why);
	}
}
END_TEST

START_TEST(a_descriptor_that_breaks_a_rule_says_where)
{
	static const struct {
		const char *array, *field;
	} wrong[] = {
		{"{", "JSON"},
		{"1", "name"},
		{"{\"name\":3}", "name"},
		{"{\"name\":\"w\",\"dtype\":\"i8\",\"shape\":[-1]}", "shape"},
		{"{\"name\":\"w\",\"dtype\":\"i8\",\"shape\":4}", "shape"},
		{"{\"name\":\"w\",\"dtype\":\"i8\",\"shape\":[9223372036854775807,9]}", "shape"},
		{"{\"name\":\"w\",\"dtype\":\"i8\",\"shape\":"
		 "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}",
		 "shape"},
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put_descriptor(wrong[i].array);
		read_all();
		ck_assert_uint_eq(ckpt_catalog_count(c), 0);
		check_fault(0, wrong[i].field, "");
	}
	put_text(&files[INDEX].bytes, "{\"arrays\":{}}");
	read_all();
	check_fault(0, "arrays", "list");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("catalog_index");
	TCase *t = tcase_create("catalog_index");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, the_files_of_an_index_are_one_tree);
	tcase_add_test(t, names_that_are_missing_or_extra_are_told);
	tcase_add_test(t, a_name_that_two_files_have_is_told_once);
	tcase_add_test(t, an_index_that_breaks_a_rule_says_where);
	tcase_add_test(t, pieces_of_a_descriptor_are_boxes);
	tcase_add_test(t, flat_ranges_become_boxes);
	tcase_add_test(t, a_descriptor_lists_what_it_cannot_read_with_the_reason);
	tcase_add_test(t, a_descriptor_that_breaks_a_rule_says_where);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
