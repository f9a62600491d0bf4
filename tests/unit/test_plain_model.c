// The plain tree of a state beside a model of it: any acts, in any order, with snapshots in between.
#include "tests/support/allocfault.h"
#include "tests/support/plain_tree.h"
#include "tests/support/suite.h"

#include <stdio.h>

#define A CKPT_TREE_A
#define B CKPT_TREE_B
#define C CKPT_TREE_C
#define NONE CKPT_TREE_NONE
#define STEP "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
#define STEP_2 "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"

// The model: lists, searched from their beginning, and what act.h and plain.h say of the acts.
enum { MODEL_MAX = 64 };

struct is {
	struct ckpt_act as; // its place, id, mode, time, kind; of a file its content
	char content[32];
	uint64_t version;
	char node[CKPT_UUID_LEN + 1];
};

static struct is model[MODEL_MAX];
static size_t model_count;
static const char
	*model_step; // the folder of the only step, as the remote's log has it; NULL: it is deleted, or was never saved
static unsigned fitting[CKPT_ACT_KINDS], voids[CKPT_ACT_KINDS];

static struct is *at_place(const char *folder, const char *name)
{
	for (size_t i = 0; i < model_count; i++)
		if (!strcmp(model[i].as.folder_id, folder) && !strcmp(model[i].as.name, name))
			return &model[i];
	return NULL;
}

static struct is *of_id(const char *id)
{
	for (size_t i = 0; i < model_count && *id; i++)
		if (!strcmp(model[i].as.id, id))
			return &model[i];
	return NULL;
}

static bool is_empty(const char *id)
{
	for (size_t i = 0; i < model_count; i++)
		if (!strcmp(model[i].as.folder_id, id))
			return false;
	return !model_step || strcmp(model_step, id) != 0;
}

static bool is_in(const char *folder, const char *id)
{
	for (; *folder; folder = of_id(folder)->as.folder_id)
		if (!strcmp(folder, id))
			return true;
	return false;
}

static void put(struct is *e, const struct ckpt_act *a, uint64_t version, const char *node)
{
	e->as = *a;
	if (a->content_len)
		memcpy(e->content, a->content, a->content_len);
	e->as.content = e->content;
	e->version = version;
	strcpy(e->node, node);
}

static bool model_does(const struct ckpt_act *a, uint64_t version, const char *node)
{
	struct is *there = at_place(a->folder_id, a->name), *folder = of_id(a->id);
	bool has_parent = !*a->folder_id || of_id(a->folder_id);

	switch (a->kind) {
	case CKPT_ACT_MKDIR:
		if (folder || there || !has_parent)
			return false;
		put(&model[model_count++], a, version, node);
		return true;
	case CKPT_ACT_FILE:
		if (!has_parent || (there ? *there->as.id || there->version != a->before : a->before != 0))
			return false;
		put(there ? there : &model[model_count++], a, version, node);
		return true;
	case CKPT_ACT_REMOVE:
		if (!there || there->version != a->before || (*there->as.id && !is_empty(there->as.id)))
			return false;
		*there = model[--model_count];
		there->as.content = there->content;
		return true;
	default: // MOVE
		if (!folder || folder->version != a->before || there || !has_parent || is_in(a->folder_id, a->id))
			return false;
		strcpy(folder->as.folder_id, a->folder_id);
		strcpy(folder->as.name, a->name);
		folder->version = version;
		strcpy(folder->node, node);
		return true;
	}
}

static unsigned below(unsigned *seed, unsigned n)
{
	return (unsigned)rand_r(seed) % n;
}

static uint64_t any_version(unsigned *seed)
{
	return model_count ? model[below(seed, (unsigned)model_count)].version : 1u << 16;
}

// Mostly one that fits.
static struct ckpt_act any_act(unsigned *seed, char content[32])
{
	static const char *const ids[] = {"", A, B, C, "1111111111111111", "2222222222222222"};
	static const char *const names[] = {"a", "b", "c"};
	const char *folder = ids[below(seed, ARRAY_LEN(ids))], *id = ids[1 + below(seed, ARRAY_LEN(ids) - 1)];
	const char *name = names[below(seed, ARRAY_LEN(names))];
	const struct is *there = at_place(folder, name), *moved = of_id(id);
	bool stale = !below(seed, 5);
	struct ckpt_act a;

	snprintf(content, 32, "%.*s", (int)below(seed, 20), "content of some length");
	switch (below(seed, 4)) {
	case 0:
		return ckpt_tree_mkdir(id, folder, name);
	case 1:
		a = ckpt_tree_file(folder, name, stale ? any_version(seed) : there ? there->version : 0, content);
		a.link = *content && !below(seed, 4);
		a.mode = below(seed, 01000);
		return a;
	case 2:
		return ckpt_tree_remove(folder, name, stale || !there ? any_version(seed) : there->version);
	default:
		return ckpt_tree_move(id, folder, name, stale || !moved ? any_version(seed) : moved->version);
	}
}

static void compare(void)
{
	size_t count;
	struct ckpt_plain *const *all = ckpt_state_plains(ckpt_tree.state, &count);

	ck_assert_uint_eq(count, model_count);
	for (size_t i = 0; i < count; i++)
		ck_assert_ptr_nonnull(at_place(all[i]->folder_id, all[i]->name));
	for (size_t i = 0; i < model_count; i++) {
		const struct is *want = &model[i];
		const struct ckpt_plain *e = ckpt_state_plain(ckpt_tree.state, want->as.folder_id, want->as.name);

		ck_assert_ptr_nonnull(e);
		ck_assert_str_eq(e->id, want->as.id);
		ck_assert_ptr_eq(ckpt_state_plain_folder(ckpt_tree.state, want->as.id), *e->id ? e : NULL);
		ck_assert_uint_eq(e->version, want->version);
		ck_assert_uint_eq(e->mode, want->as.mode);
		ck_assert_int_eq(e->mtime_ns, want->as.time_ns);
		ck_assert_int_eq(e->link, want->as.link);
		ck_assert_str_eq(ckpt_state_node(ckpt_tree.state, e->node), want->node);
		ck_assert_uint_eq(e->content.len, want->as.content_len);
		ck_assert_mem_eq(ckpt_tree_content(e), want->content, want->as.content_len);
	}
}

static void replace_by_its_snapshot(void)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len;

	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	ckpt_state_free(TAKE_PTR(ckpt_tree.state));
	ck_ok(ckpt_state_decode(bytes, len, &ckpt_tree.state));
	ckpt_tree_assert_bytes(ckpt_tree.state, bytes, len);
}

// The step is saved in a folder, or goes from there.
static void any_step(unsigned *seed)
{
	static const char *const folders[] = {"", A, B};
	const struct ckpt_state_step *step = ckpt_state_step(ckpt_tree.state, STEP);
	const char *folder = folders[below(seed, ARRAY_LEN(folders))];
	struct ckpt_act a;

	if (!step) {
		ckpt_tree_add_save(STEP, folder, "a");
		model_step = folder;
		return;
	}
	a = ckpt_tree_rename(STEP, folder, "b");
	if (step->deleted_by) {
		a = ckpt_tree_delete(STEP, ckpt_state_last(step) + 1);
		a.kind = CKPT_ACT_UNDELETE;
		folder = step->is.folder_id[0] == 'a' ? A : step->is.folder_id[0] ? B : "";
	} else if (below(seed, 2)) {
		a = ckpt_tree_delete(STEP, ckpt_state_last(step) + 1);
		folder = NULL;
	}
	model_step = folder;
	ckpt_tree_add(&a, CKPT_TREE_OTHER);
}

static void run_at_random(unsigned seed)
{
	ckpt_tree_begin();
	model_count = 0;
	model_step = NULL;
	for (unsigned i = 0; i < 40; i++) {
		unsigned acts = 1 + below(&seed, 4);
		uint64_t version = (ckpt_state_remote(ckpt_tree.state).seq + 1) << 16;

		if (!below(&seed, 6)) {
			any_step(&seed);
			version++;
		}
		for (unsigned k = 0; k < acts; k++, version++) {
			const char *node = below(&seed, 2) ? CKPT_TREE_NODE : CKPT_TREE_OTHER;
			char content[32];
			struct ckpt_act a = any_act(&seed, content);

			ckpt_tree_add(&a, node);
			if (model_does(&a, version, node))
				fitting[a.kind]++;
			else
				voids[a.kind]++;
		}
		ckpt_tree_pull();
		if (!below(&seed, 8))
			replace_by_its_snapshot();
		compare();
	}
	ckpt_tree_end();
}

START_TEST(a_tree_is_what_the_model_says)
{
	unsigned runs = ckpt_suite_full() ? 20000 : 1000;

	for (unsigned seed = 1; seed <= runs; seed++)
		run_at_random(seed);
	for (unsigned kind = CKPT_ACT_MKDIR; kind <= CKPT_ACT_MOVE; kind++)
		ck_assert_msg(fitting[kind] > runs && voids[kind] > runs, "kind %u: %u fit, %u are void", kind,
			      fitting[kind], voids[kind]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plain model");
	TCase *any = tcase_create("anything");

	tcase_add_test(any, a_tree_is_what_the_model_says);
	suite_add_tcase(suite, any);
	return ckpt_suite_run(suite);
}
