#include "tests/support/plain_tree.h"

#include "tests/support/formats.h"
#include "tests/support/suite.h"

#include <stdio.h>

enum { OFFSET = 100, OPS_MAX = 2048 };

struct ckpt_tree ckpt_tree;

static struct {
	struct ckpt_operation ops[OPS_MAX];
	void *bodies[OPS_MAX];
	uint32_t count;
} entry; // the next one

int ckpt_tree_apply(struct ckpt_state *s, uint16_t kind, const void *body, size_t len)
{
	struct ckpt_operation op = {.node = CKPT_TREE_NODE,
				    .number = ckpt_tree.number,
				    .kind = kind,
				    .required = true,
				    .body = body,
				    .len = len};
	struct ckpt_span at = {.seq = ckpt_tree.number, .offset = OFFSET, .len = (uint32_t)len};

	return ckpt_state_apply(s, CKPT_TREE_STORE, &op, &at);
}

void ckpt_tree_begin(void)
{
	struct ckpt_pull attaches = {.host = "here"};
	CLEANUP_FREE void *body = NULL;
	size_t len;

	ckpt_tree.state = ckpt_state_new();
	ck_assert_ptr_nonnull(ckpt_tree.state);
	ckpt_tree.number = 1;
	ck_ok(ckpt_pull_encode(&attaches, &body, &len));
	ck_ok(ckpt_tree_apply(ckpt_tree.state, CKPT_PULL_KIND, body, len));
}

void ckpt_tree_end(void)
{
	ckpt_state_free(ckpt_tree.state);
	for (uint64_t i = 0; i <= ckpt_tree.number; i++)
		free(TAKE_PTR(ckpt_tree.pulls[i]));
}

// --- The remote's log -----------------------------------------------------------------------------------------------------

struct ckpt_operation *ckpt_tree_add_body(uint16_t kind, void *body, size_t len, const char *node)
{
	struct ckpt_operation *op = &entry.ops[entry.count];

	ck_assert_uint_lt(entry.count, OPS_MAX);
	*op = (struct ckpt_operation){.kind = kind, .required = true, .body = body, .len = len};
	strcpy(op->node, node);
	entry.bodies[entry.count++] = body;
	return op;
}

void ckpt_tree_add(const struct ckpt_act *a, const char *node)
{
	void *body;
	size_t len;

	ck_ok(ckpt_act_encode(a, &body, &len));
	(void)ckpt_tree_add_body((uint16_t)a->kind, body, len, node);
}

void ckpt_tree_make_pull(void **ret_body, size_t *ret_len)
{
	struct ckpt_log_position at = ckpt_state_remote(ckpt_tree.state);
	struct ckpt_log_entry e = {.store_id = CKPT_TREE_STORE,
				   .node = CKPT_TREE_OTHER,
				   .seq = at.seq + 1,
				   .time_ns = 1,
				   .count = entry.count};
	CLEANUP_FREE void *data = NULL;
	struct ckpt_pull pull = {.host = ""};

	memcpy(e.before, at.sha256, sizeof(e.before));
	ck_ok(ckpt_log_entry_encode(&e, entry.ops, &data, &pull.entry_len));
	pull.entry = data;
	ck_ok(ckpt_pull_encode(&pull, ret_body, ret_len));
	while (entry.count)
		free(entry.bodies[--entry.count]);
}

void ckpt_tree_pull(void)
{
	uint64_t seq = ckpt_state_remote(ckpt_tree.state).seq;
	size_t len;

	ckpt_tree.number++;
	ck_assert_uint_lt(ckpt_tree.number, CKPT_TREE_PULLS_MAX);
	ckpt_tree_make_pull(&ckpt_tree.pulls[ckpt_tree.number], &len);
	ck_ok(ckpt_pull_check(CKPT_TREE_STORE, ckpt_tree.pulls[ckpt_tree.number], len));
	ck_ok(ckpt_tree_apply(ckpt_tree.state, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], len));
	ck_assert_uint_eq(ckpt_state_remote(ckpt_tree.state).seq, seq + 1);
}

uint64_t ckpt_tree_version(unsigned index)
{
	return ckpt_state_remote(ckpt_tree.state).seq << 16 | index;
}

// --- Acts ---------------------------------------------------------------------------------------------------------------

struct ckpt_act ckpt_tree_mkdir(const char *id, const char *folder, const char *name)
{
	struct ckpt_act a = {.kind = CKPT_ACT_MKDIR, .mode = 0750};

	strcpy(a.id, id);
	strcpy(a.folder_id, folder);
	strcpy(a.name, name);
	return a;
}

struct ckpt_act ckpt_tree_file(const char *folder, const char *name, uint64_t before, const char *content)
{
	struct ckpt_act a = {.kind = CKPT_ACT_FILE, .mode = 0640, .time_ns = -5, .before = before};

	strcpy(a.folder_id, folder);
	strcpy(a.name, name);
	a.content = content;
	a.content_len = strlen(content);
	return a;
}

struct ckpt_act ckpt_tree_link(const char *folder, const char *name, uint64_t before, const char *target)
{
	struct ckpt_act a = ckpt_tree_file(folder, name, before, target);

	a.link = true;
	return a;
}

struct ckpt_act ckpt_tree_remove(const char *folder, const char *name, uint64_t before)
{
	struct ckpt_act a = {.kind = CKPT_ACT_REMOVE, .before = before};

	strcpy(a.folder_id, folder);
	strcpy(a.name, name);
	return a;
}

struct ckpt_act ckpt_tree_move(const char *id, const char *folder, const char *name, uint64_t before)
{
	struct ckpt_act a = {.kind = CKPT_ACT_MOVE, .before = before};

	strcpy(a.id, id);
	strcpy(a.folder_id, folder);
	strcpy(a.name, name);
	return a;
}

static struct ckpt_summary summary_of(const char *id, const char *folder, const char *name)
{
	struct ckpt_summary sum;

	ckpt_sample_summary(&sum, name, 1);
	strcpy(sum.session, id);
	strcpy(sum.folder_id, folder);
	sum.pinned = sum.temporary = false;
	return sum;
}

void *ckpt_tree_save_body(const char *id, const char *folder, const char *name, size_t *ret_len)
{
	struct ckpt_record r = {.store_id = CKPT_TREE_STORE, .summary = summary_of(id, folder, name)};
	struct ckpt_act a = {.kind = CKPT_ACT_SAVE};
	CLEANUP_FREE void *record = NULL;
	void *body;

	ck_ok(ckpt_record_encode(&r, &record, &a.record_len));
	a.record = record;
	ck_ok(ckpt_act_encode(&a, &body, ret_len));
	return body;
}

void ckpt_tree_add_save(const char *id, const char *folder, const char *name)
{
	size_t len;
	void *body = ckpt_tree_save_body(id, folder, name, &len);

	(void)ckpt_tree_add_body(CKPT_ACT_SAVE, body, len, CKPT_TREE_OTHER);
}

struct ckpt_act ckpt_tree_delete(const char *id, uint32_t version)
{
	struct ckpt_act a = {.kind = CKPT_ACT_DELETE, .version = version, .time_ns = 1};

	strcpy(a.step, id);
	return a;
}

struct ckpt_act ckpt_tree_rename(const char *id, const char *folder, const char *name)
{
	struct ckpt_act a = {.kind = CKPT_ACT_RENAME, .time_ns = 1};

	strcpy(a.step, id);
	strcpy(a.folder_id, folder);
	strcpy(a.name, name);
	return a;
}

// --- Looking ------------------------------------------------------------------------------------------------------------

const void *ckpt_tree_content(const struct ckpt_plain *e)
{
	if (!e->content.len)
		return "";
	ck_assert_uint_le(e->content.seq, ckpt_tree.number);
	return (const uint8_t *)ckpt_tree.pulls[e->content.seq] + (e->content.offset - OFFSET);
}

static int by_version(const void *a, const void *b)
{
	uint64_t x = (*(struct ckpt_plain *const *)a)->version, y = (*(struct ckpt_plain *const *)b)->version;

	return (x > y) - (x < y);
}

char *ckpt_tree_said(const struct ckpt_state *s)
{
	size_t count, len;
	struct ckpt_plain *const *all = ckpt_state_plains(s, &count);
	CLEANUP_FREE struct ckpt_plain **sorted = calloc(count + 1, sizeof(*sorted));
	char *text;
	FILE *f = open_memstream(&text, &len);

	for (size_t i = 0; i < count; i++)
		sorted[i] = all[i];
	qsort(sorted, count, sizeof(*sorted), by_version);
	for (size_t i = 0; i < count; i++) {
		const struct ckpt_plain *e = sorted[i];

		ck_assert_ptr_eq(ckpt_state_plain(s, e->folder_id, e->name), e);
		if (*e->id)
			ck_assert_ptr_eq(ckpt_state_plain_folder(s, e->id), e);
		fprintf(f, "%s/%s %s %d %o %lld %llx %s %.*s\n", e->folder_id, e->name, e->id, e->link, e->mode,
			(long long)e->mtime_ns, (unsigned long long)e->version, ckpt_state_node(s, e->node),
			(int)e->content.len, (const char *)ckpt_tree_content(e));
	}
	fclose(f);
	return text;
}

size_t ckpt_tree_count(const struct ckpt_state *s)
{
	size_t count;

	(void)ckpt_state_plains(s, &count);
	return count;
}

uint64_t ckpt_tree_fits(struct ckpt_act a)
{
	CLEANUP_FREE char *before = ckpt_tree_said(ckpt_tree.state), *after = NULL;

	ckpt_tree_add(&a, CKPT_TREE_OTHER);
	ckpt_tree_pull();
	after = ckpt_tree_said(ckpt_tree.state);
	ck_assert_str_ne(before, after);
	return ckpt_tree_version(0);
}

void ckpt_tree_is_void(struct ckpt_act a)
{
	CLEANUP_FREE char *before = ckpt_tree_said(ckpt_tree.state), *after = NULL;

	ckpt_tree_add(&a, CKPT_TREE_OTHER);
	ckpt_tree_pull();
	after = ckpt_tree_said(ckpt_tree.state);
	ck_assert_str_eq(before, after);
}

void ckpt_tree_assert_content(const struct ckpt_plain *e, const char *content)
{
	uint8_t sha256[CKPT_SHA256_LEN];

	ckpt_sha256(content, strlen(content), sha256);
	ck_assert_uint_eq(e->size, strlen(content));
	ck_assert_uint_eq(e->content.len, strlen(content));
	ck_assert_mem_eq(e->sha256, sha256, sizeof(sha256));
	ck_assert_mem_eq(ckpt_tree_content(e), content, strlen(content));
}

void ckpt_tree_bytes(const struct ckpt_state *s, uint8_t **ret, size_t *ret_len)
{
	void *data;

	ck_ok(ckpt_state_encode(s, &data, ret_len));
	*ret = data;
}

void ckpt_tree_assert_bytes(const struct ckpt_state *s, const void *bytes, size_t len)
{
	CLEANUP_FREE uint8_t *now = NULL;
	size_t now_len;

	ckpt_tree_bytes(s, &now, &now_len);
	ck_assert_uint_eq(now_len, len);
	ck_assert_mem_eq(now, bytes, len);
}

void ckpt_tree_make_rich(void)
{
	ckpt_tree_fits(ckpt_tree_mkdir(CKPT_TREE_A, "", "fa"));
	ckpt_tree_fits(ckpt_tree_mkdir(CKPT_TREE_B, CKPT_TREE_A, "fb"));
	ckpt_tree_fits(ckpt_tree_file(CKPT_TREE_B, "file", 0, "content"));
	ckpt_tree_fits(ckpt_tree_link("", "link", 0, "target"));
	ckpt_tree_fits(ckpt_tree_file("", "none", 0, ""));
}
