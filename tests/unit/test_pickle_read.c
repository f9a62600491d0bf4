// The graphs of pickles, and pickles that are refused. Samples are what CPython writes, and what it never would.
#include "tests/support/allocfault.h"
#include "tests/support/array_files.h"
#include "tests/support/suite.h"

#include "core/array/pickle.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>
#include <sys/resource.h>

static struct ckpt_bytes file;
static struct ckpt_pickle *p;
static struct ckpt_pickle_fault fault;

static void teardown(void)
{
	free(file.data);
	file = (struct ckpt_bytes){0};
	ckpt_pickle_free(p);
	p = NULL;
}

static int read_bytes(const void *data, size_t len)
{
	struct ckpt_source s;

	ckpt_pickle_free(p);
	p = NULL;
	file.len = 0;
	ckpt_bytes_add(&file, data, len);
	s = ckpt_bytes_source(&file);
	return ckpt_pickle_read(&s, 0, s.bytes, &p, NULL, &fault);
}

#define READ(text) read_bytes(text, sizeof(text) - 1)

// The graph as Python writes it, with "..." for a value that is being written.
static char *write_value(char *to, ckpt_value v, int depth)
{
	static const char *const brackets[] = {
		[CKPT_VALUE_TUPLE] = "()", [CKPT_VALUE_LIST] = "[]", [CKPT_VALUE_DICT] = "{}"};
	enum ckpt_value_kind kind = ckpt_value_kind(p, v);
	uint64_t offset, bytes;
	int64_t number;
	size_t len;
	const char *text;

	if (depth > 4)
		return to + sprintf(to, "...");
	switch (kind) {
	case CKPT_VALUE_NONE:
		return to + sprintf(to, "None");
	case CKPT_VALUE_BOOL:
	case CKPT_VALUE_INT:
		ck_assert(ckpt_value_int(p, v, &number));
		return to + sprintf(to, "%s%lld", kind == CKPT_VALUE_BOOL ? "b" : "", (long long)number);
	case CKPT_VALUE_FLOAT:
		return to + sprintf(to, "float");
	case CKPT_VALUE_TEXT:
		text = ckpt_value_text(p, v, &len);
		return to + sprintf(to, "'%.*s'", (int)len, text);
	case CKPT_VALUE_BYTES:
		ck_assert(ckpt_value_bytes(p, v, &offset, &bytes));
		return to + sprintf(to, "@%llu+%llu", (unsigned long long)offset, (unsigned long long)bytes);
	case CKPT_VALUE_GLOBAL:
		text = ckpt_value_global(p, v, &len);
		return to + sprintf(to, "<%.*s>", (int)len, text);
	case CKPT_VALUE_TUPLE:
	case CKPT_VALUE_LIST:
	case CKPT_VALUE_DICT:
		*to++ = brackets[kind][0];
		for (ckpt_item at = ckpt_value_first(p, v); at; at = ckpt_item_next(p, at)) {
			to = write_value(to, ckpt_item_value(p, at), depth + 1);
			*to++ = ',';
		}
		*to++ = brackets[kind][1];
		*to = '\0';
		return to;
	case CKPT_VALUE_OBJECT:
		to = write_value(to, ckpt_value_callee(p, v), depth + 1);
		to = write_value(to, ckpt_value_arguments(p, v), depth + 1);
		*to++ = '|';
		return write_value(to, ckpt_value_state(p, v), depth + 1);
	case CKPT_VALUE_PERSISTENT:
		to += sprintf(to, "#");
		return write_value(to, ckpt_value_id(p, v), depth + 1);
	case CKPT_VALUE_OPAQUE:
		break;
	}
	return to + sprintf(to, "?");
}

#define SAMPLE(pickle, graph)                                                                                          \
	{                                                                                                              \
		pickle, sizeof(pickle) - 1, graph                                                                      \
	}

START_TEST(a_graph_has_what_the_pickle_says)
{
	static const struct {
		const char *data;
		size_t len;
		const char *graph;
	} samples[] = {
		SAMPLE("\x80\2N.", "None"),
		SAMPLE("\x80\2](K\1M\1\2J\xff\xff\xff\xff\x88\x89G12345678e.", "[1,513,-1,b1,b0,float,]"),
		SAMPLE("\x80\2(\x8a\0\x8a\1\xff\x8a\2\xff\0\x8a\x09xxxxxxxxxt.", "(0,-1,255,?,)"),
		SAMPLE("\x80\2(I01\nI00\nI12\nL-5L\nF1.5\nV\xc3\xa4\nl.", "[b1,b0,12,-5,float,'\xc3\xa4',]"),
		SAMPLE("\x80\4\x95\0\0\0\0\0\0\0\0}\x94(\x8c\1a\x94K\1h\1K\2u.", "{'a',1,'a',2,}"),
		SAMPLE("\x80\2]q\0h\0a.", "[[[[[...,],],],],]"),
		SAMPLE("\x80\2ccollections\nOrderedDict\n)R(X\1\0\0\0kK\7u.", "{'k',7,}"),
		SAMPLE("\x80\2ccollections\nOrderedDict\n](X\1\0\0\0kK\7\x86"
		       "e\x85R.",
		       "{'k',7,}"),
		SAMPLE("\x80\2"
		       "ccollections\ndefaultdict\nc__builtin__\nlist\n\x85RK\1K\2s.",
		       "{1,2,}"),
		SAMPLE("\x80\2"
		       "ctorch\nSize\nK\2K\3\x86\x85R.",
		       "(2,3,)"),
		SAMPLE("\x80\2"
		       "c__builtin__\nset\n](K\1K\2e\x85R.",
		       "[1,2,]"),
		SAMPLE("\x80\2"
		       "cos\nsystem\nX\2\0\0\0rm\x85R.",
		       "<os system>('rm',)|None"),
		SAMPLE("\x80\4\x8c\2os\x8c\6system\x93)\x81}K\1K\2sb.", "<os system>()|{1,2,}"),
		SAMPLE("\x80\4\x8c\1m\x8c\1n\x93)}\x92.", "<m n>()|None"),
		SAMPLE("\x80\2(im\nn\n.", "<m n>()|None"),
		SAMPLE("\x80\2(K\1im\nn\n.", "<m n>(1,)|None"),
		SAMPLE("\x80\2(cm\nn\nK\1o.", "<m n>(1,)|None"),
		SAMPLE("\x80\2X\1\0\0\0aQ.", "#'a'"),
		SAMPLE("\x80\2Pabc\n.", "#'abc'"),
		SAMPLE("\x80\3C\2..B\1\0\0\0.\x86.", "(@4+2,@11+1,)"),
		SAMPLE("\x80\5\x96\1\0\0\0\0\0\0\0.\x8e\0\0\0\0\0\0\0\0\x86.", "(@11+1,@21+0,)"),
		SAMPLE("\x80\2K\1(K\2K\3"
		       "1.",
		       "1"),
		SAMPLE("\x80\2K\1(0.", "1"),
		SAMPLE("\x80\2K\1"
		       "2\x86.",
		       "(1,1,)"),
		SAMPLE("\x80\2K\5p7\n0g7\nr\1\1\0\0j\1\1\0\0\x86.", "(5,5,)"),
		SAMPLE("\x80\2\x82\1.", "?"),
		SAMPLE("\x80\4\x8f\x94(K\1\x90.", "[1,]"),
		SAMPLE("\x80\4(K\1\x91.", "[1,]"),
	};
	char graph[4096];

	for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
		int rc = read_bytes(samples[i].data, samples[i].len);

		ck_assert_msg(!rc, "%zu: %s at %llu", i, fault.what, (unsigned long long)fault.at);
		write_value(graph, ckpt_pickle_root(p), 0);
		ck_assert_str_eq(graph, samples[i].graph);
		for (size_t cut = 0; cut < samples[i].len - 1; cut++)
			ck_error(read_bytes(samples[i].data, cut), EINVAL);
	}
}
END_TEST

START_TEST(the_last_value_of_a_key_counts)
{
	ckpt_value value;
	int64_t number;

	ck_ok(READ("\x80\2}(X\1\0\0\0aK\1X\1\0\0\0bK\2X\1\0\0\0aK\3u."));
	ck_assert(ckpt_value_get(p, ckpt_pickle_root(p), "a", &value));
	ck_assert(ckpt_value_int(p, value, &number));
	ck_assert_int_eq(number, 3);
	ck_assert(!ckpt_value_get(p, ckpt_pickle_root(p), "c", &value));
	ck_assert(!ckpt_value_get(p, 0, "a", &value));
}
END_TEST

START_TEST(wrong_pickles_are_refused_with_the_place)
{
	static const struct {
		const char *data;
		size_t len;
		const char *word;
	} wrong[] = {
		SAMPLE("", "ends"),
		SAMPLE("\x80\6N.", "begin"),
		SAMPLE("N.", "begin"),
		SAMPLE("\x80\2.", "empty"),
		SAMPLE("\x80\2N(.", "empty"),
		SAMPLE("\x80\2\7.", "opcode"),
		SAMPLE("\x80\2N]a.", "no list"),
		SAMPLE("\x80\2]a.", "container"),
		SAMPLE("\x80\2}Na.", "no list"),
		SAMPLE("\x80\2]NNs.", "no dictionary"),
		SAMPLE("\x80\2}(Nu.", "no value"),
		SAMPLE("\x80\2(Nu.", "below"),
		SAMPLE("\x80\2Nt.", "no mark"),
		SAMPLE("\x80\2(Ne.", "below"),
		SAMPLE("\x80\2N\x86.", "tuple"),
		SAMPLE("\x80\2(N\x85\x86.", "tuple"),
		SAMPLE("\x80\2NNR.", "no tuple"),
		SAMPLE("\x80\2)R.", "empty"),
		SAMPLE("\x80\2(o.", "no class"),
		SAMPLE("\x80\2h\0.", "memo"),
		SAMPLE("\x80\2q\0.", "stack"),
		SAMPLE("\x80\2Nq\1h\0.", "memo"),
		SAMPLE("\x80\2Nr\xff\xff\xff\xff.", "memo"),
		SAMPLE("\x80\2Npx\n.", "memo"),
		SAMPLE("\x80\2NN\x93.", "no text"),
		SAMPLE("\x80\2X\xff\xff\xff\xff.", "ends"),
		SAMPLE("\x80\4\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", "too long"),
		SAMPLE("\x80\2\x8b\xff\xff\xff\xff.", "ends"),
		SAMPLE("\x80\2"
		       "2.",
		       "stack"),
		SAMPLE("\x80\2b.", "empty"),
		SAMPLE("\x80\2Nb.", "stack"),
		SAMPLE("\x80\2"
		       "1.",
		       "no mark"),
		SAMPLE("\x80\2"
		       "0.",
		       "empty"),
		SAMPLE("\x80\2Q.", "empty"),
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		ck_error(read_bytes(wrong[i].data, wrong[i].len), EINVAL);
		ck_assert_msg(strstr(fault.what, wrong[i].word), "%zu: %s", i, fault.what);
		ck_assert_uint_le(fault.at, wrong[i].len);
		ck_assert_ptr_null(p);
	}
}
END_TEST

// Files that say one thing again and again: each takes much memory, or time, for few bytes.
static int read_repeated(const void *part, size_t len, uint64_t total)
{
	file.len = 0;
	ckpt_bytes_add(&file, "\x80\2", 2);
	while (file.len < total)
		ckpt_bytes_add(&file, part, len);
	ckpt_bytes_add(&file, ".", 1);
	ckpt_pickle_free(p);
	p = NULL;
	struct ckpt_source s = ckpt_bytes_source(&file);
	return ckpt_pickle_read(&s, 0, s.bytes, &p, NULL, &fault);
}

START_TEST(bombs_take_bounded_memory)
{
	static const char *const parts[] = {"N",    "K\1",     "(",     "]",  "}",    ")", "2",
					    "Nq\1", "cA\nB\n", "N\x85", "NN", "U\1a", "(N"};
	struct rlimit limit = {(rlim_t)400 << 20, (rlim_t)400 << 20}, was;

	getrlimit(RLIMIT_DATA, &was);
	ckpt_bytes_fill(&file, 33 << 20, 1); // of the test's own
	limit.rlim_max = was.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_DATA, &limit), 0);
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		int rc = read_repeated(parts[i], strlen(parts[i]), 32 << 20);

		ck_assert_msg(!rc || rc == -EINVAL, "%s: %s", parts[i], strerror(-rc));
	}
}
END_TEST

static int read_of_pattern(void *arg, uint64_t offset, void *buf, size_t len)
{
	uint8_t *to = buf;

	(void)arg;
	for (size_t i = 0; i < len; i++)
		to[i] = offset + i < 2 ? "\x80\2"[offset + i] : "N0"[(offset + i) % 2];
	return 0;
}

START_TEST(a_pickle_of_too_many_opcodes_is_refused)
{
	const struct ckpt_source s = {.bytes = UINT64_C(1) << 40, .read = read_of_pattern};

	ck_error(ckpt_pickle_read(&s, 0, s.bytes, &p, NULL, &fault), EINVAL);
	ck_assert_str_eq(fault.what, "it has too many opcodes");
}
END_TEST

START_TEST(a_read_that_fails_and_memory_that_is_short_are_told)
{
	static const char data[] = "\x80\2}q\0(X\1\0\0\0a]q\1(K\1cm\nn\n)Rq\2N\x85"
				   "eu.";
	struct ckpt_source s;
	uint64_t n = 1;

	file.fails_at = 1;
	ck_error(READ("\x80\2N."), EIO);
	file.fails_at = 0;
	for (;; n++) {
		int rc;

		READ("\x80\2N.");
		ckpt_pickle_free(p);
		p = NULL;
		file.len = 0;
		ckpt_bytes_add(&file, data, sizeof(data) - 1);
		s = ckpt_bytes_source(&file);
		ckpt_allocfault_begin(n, false);
		rc = ckpt_pickle_read(&s, 0, s.bytes, &p, NULL, &fault);
		if (ckpt_allocfault_end() < n) {
			ck_ok(rc);
			break;
		}
		ck_error(rc, ENOMEM);
	}
	ck_assert_uint_gt(n, 6);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pickle read");
	TCase *t = tcase_create("pickle read");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, a_graph_has_what_the_pickle_says);
	tcase_add_test(t, the_last_value_of_a_key_counts);
	tcase_add_test(t, wrong_pickles_are_refused_with_the_place);
	tcase_add_test(t, bombs_take_bounded_memory);
	tcase_add_test(t, a_pickle_of_too_many_opcodes_is_refused);
	tcase_add_test(t, a_read_that_fails_and_memory_that_is_short_are_told);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
