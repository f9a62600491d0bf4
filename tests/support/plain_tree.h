// A state beside the log of a remote, of which the test makes the entries: acts on the plain tree, one after the other, and what comes of each.
//
// There is one at a time. What must not fail ends the test.
#pragma once

#include "core/base/util.h"
#include "core/state/act.h"
#include "core/state/plain.h"
#include "core/state/shared.h"

#define CKPT_TREE_STORE "11111111-1111-4111-8111-111111111111"
#define CKPT_TREE_NODE "22222222-2222-4222-8222-222222222222" // whose state it is
#define CKPT_TREE_OTHER "33333333-3333-4333-8333-333333333333"
#define CKPT_TREE_A "aaaaaaaaaaaaaaaa" // ids of folders
#define CKPT_TREE_B "bbbbbbbbbbbbbbbb"
#define CKPT_TREE_C "cccccccccccccccc"
#define CKPT_TREE_NONE "dddddddddddddddd"

enum { CKPT_TREE_PULLS_MAX = 4096 };

extern struct ckpt_tree {
	struct ckpt_state *state;
	uint64_t number;                  // of the last operation in the node's log
	void *pulls[CKPT_TREE_PULLS_MAX]; // their bodies, by number: contents stand in there
} ckpt_tree;

void ckpt_tree_begin(void); // empty, and attached
void ckpt_tree_end(void);
int ckpt_tree_apply(struct ckpt_state *s, uint16_t kind, const void *body, size_t len); // an operation with that number

// The next entry of the remote's log: what was added since the last one.
struct ckpt_operation *ckpt_tree_add_body(uint16_t kind, void *body, size_t len, const char *node); // body: taken
void ckpt_tree_add(const struct ckpt_act *a, const char *node);
void ckpt_tree_add_save(const char *id, const char *folder, const char *name);
void ckpt_tree_make_pull(void **ret_body, size_t *ret_len);
void ckpt_tree_pull(void);
uint64_t ckpt_tree_version(unsigned index); // that its operation has made
// An entry of one act, which fits: the version. Or is void, and all is as it was.
uint64_t ckpt_tree_fits(struct ckpt_act a);
void ckpt_tree_is_void(struct ckpt_act a);

struct ckpt_act ckpt_tree_mkdir(const char *id, const char *folder, const char *name);
struct ckpt_act ckpt_tree_file(const char *folder, const char *name, uint64_t before, const char *content);
struct ckpt_act ckpt_tree_link(const char *folder, const char *name, uint64_t before, const char *target);
struct ckpt_act ckpt_tree_remove(const char *folder, const char *name, uint64_t before);
struct ckpt_act ckpt_tree_move(const char *id, const char *folder, const char *name, uint64_t before);
// Of a step.
void *ckpt_tree_save_body(const char *id, const char *folder, const char *name, size_t *ret_len);
struct ckpt_act ckpt_tree_delete(const char *id, uint32_t version);
struct ckpt_act ckpt_tree_rename(const char *id, const char *folder, const char *name);

// Looking.
const void *ckpt_tree_content(const struct ckpt_plain *e);
char *ckpt_tree_said(const struct ckpt_state *s); // all of it as text, malloc'ed, and looked at from all sides
size_t ckpt_tree_count(const struct ckpt_state *s);
void ckpt_tree_assert_content(const struct ckpt_plain *e, const char *content);
void ckpt_tree_bytes(const struct ckpt_state *s, uint8_t **ret, size_t *ret_len);
void ckpt_tree_assert_bytes(const struct ckpt_state *s, const void *bytes, size_t len);
// Five entries: folder A "fa", in it folder B "fb", in it "file"; "link"; "none", which is empty.
void ckpt_tree_make_rich(void);
