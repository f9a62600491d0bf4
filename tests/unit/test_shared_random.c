// Nodes that have pushed and pulled all show the same, after anything.
#include "tests/support/shared_nodes.h"

static unsigned random_below(unsigned *seed, unsigned n)
{
	return (unsigned)rand_r(seed) % n;
}

static void act_at_random(struct node *n, unsigned *seed)
{
	static const char *const values[] = {CKPT_VALUE_POLICY, "settinga", "settingb"};
	const char *const names[] = {"1", "2", "3", "best", "last"};
	const char *name = names[random_below(seed, ARRAY_LEN(names))];
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	const struct ckpt_state_step *step;
	size_t count;

	ck_ok(ckpt_state_steps(n->state, &steps, &count));
	if (!count || (!random_below(seed, 3) && ids < STEPS_MAX)) {
		if (!listed(n, name) || !listed(n, name)->is.pinned)
			(void)(listed(n, name) && random_below(seed, 2) ? edit(n, name) : save(n, name));
		return;
	}
	step = steps[random_below(seed, (unsigned)count)];
	switch (random_below(seed, 8)) {
	case 6:
		ck_ok(set(n, values[random_below(seed, ARRAY_LEN(values))], random_below(seed, 4) ? step->id : ""));
		break;
	case 0:
		ck_assert_int_ge(step->deleted_by ? 0 : amend(n, step), 0);
		break;
	case 1:
		ck_assert_int_ge(plain(n, CKPT_ACT_DELETE, step, 0), 0);
		break;
	case 2:
		ck_assert_int_ge(plain(n, CKPT_ACT_UNDELETE, step, 0), 0);
		break;
	case 3:
		ck_assert_int_ge(step->deleted_by ? plain(n, CKPT_ACT_EXPIRE, step, 0) : 0, 0);
		break;
	case 4:
		ck_assert_int_ge(step->deleted_by ? 0 : rename_to(n, step, name), 0);
		break;
	case 5:
		ck_assert_int_ge(step->deleted_by ? 0 : plain(n, CKPT_ACT_FLAG, step, random_below(seed, 4)), 0);
		break;
	default:
		ck_assert_int_ge(drop(n, step), 0);
		break;
	}
}

// Another act puts it into the queue again.
static unsigned change_what_was_dropped(struct node *n)
{
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	unsigned dropped = 0;
	size_t count;

	ck_ok(ckpt_state_steps(n->state, &steps, &count));
	for (size_t i = 0; i < count; i++)
		if (ckpt_state_is_dropped(steps[i])) {
			ck_ok(plain(n, CKPT_ACT_FLAG, steps[i], 0));
			dropped++;
		}
	return dropped;
}

// An act on what the node knows of the plain tree, which the tree may not allow: it is void for all then.
static struct ckpt_act random_plain_act(const struct node *n, unsigned *seed, char content[32])
{
	static const char *const ids_of[] = {"", "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"}, *const names[] = {"1", "f",
													    "g"};
	const char *folder = ids_of[random_below(seed, 3)], *name = names[random_below(seed, 3)];
	const char *folder_id = ids_of[1 + random_below(seed, 2)];
	const struct ckpt_plain *there = ckpt_state_plain(n->state, folder, name);
	const struct ckpt_plain *moved = ckpt_state_plain_folder(n->state, folder_id);
	struct ckpt_act a = {.kind = CKPT_ACT_MKDIR + random_below(seed, 4), .before = there ? there->version : 0};

	snprintf(content, 32, "%llu", (unsigned long long)++nonces);
	strcpy(a.folder_id, folder);
	strcpy(a.name, name);
	if (a.kind == CKPT_ACT_MKDIR || a.kind == CKPT_ACT_MOVE) {
		strcpy(a.id, folder_id);
		a.before = a.kind == CKPT_ACT_MKDIR ? 0 : moved ? moved->version : 1;
	} else if (a.kind == CKPT_ACT_FILE) {
		a.link = random_below(seed, 2);
		a.content = content;
		a.content_len = a.link || random_below(seed, 4) ? strlen(content) : 0;
	} else if (!a.before) {
		a.before = 1;
	}
	return a;
}

static void push_plain_at_random(struct node *n, unsigned *seed)
{
	struct batch b = {0};
	char content[2][32];

	pull_all(n);
	for (unsigned i = 0; i < 2; i++) {
		struct ckpt_act a = random_plain_act(n, seed, content[i]);
		struct ckpt_operation *op = &b.ops[b.count];

		ck_ok(ckpt_act_encode(&a, &b.bodies[b.count], &op->len));
		op->body = b.bodies[b.count++];
		op->kind = (uint16_t)a.kind;
		op->required = true;
		strcpy(op->node, n->id);
	}
	put_entry(n, &b);
	for (uint32_t i = 0; i < b.count; i++)
		free(b.bodies[i]);
}

static size_t plains_of(const struct node *n)
{
	size_t count;

	(void)ckpt_state_plains(n->state, &count);
	return count;
}

static unsigned run_at_random(unsigned seed, size_t *ret_plains, unsigned *ret_dropped)
{
	unsigned jumps = 0;

	begin();
	for (unsigned i = 0; i < 150; i++) {
		struct node *n = &nodes[random_below(&seed, NODES)];

		switch (random_below(&seed, 13)) {
		case 0:
			if (!push_value(n))
				push_next(n, random_below(&seed, 2));
			break;
		case 3:
			put_snapshot(n);
			break;
		case 4:
			jumps += jump(n);
			break;
		case 11:
		case 12:
			push_plain_at_random(n, &seed);
			break;
		case 1:
			pull_next(n);
			break;
		case 2:
			replace_by_its_snapshot(n);
			break;
		default:
			act_at_random(n, &seed);
		}
	}
	meet();
	for (unsigned i = 0; i < NODES; i++)
		*ret_dropped += change_what_was_dropped(&nodes[i]);
	meet();
	check_all_same();
	for (unsigned i = 0; i < NODES; i++)
		put_snapshot(&nodes[i]);
	*ret_plains += plains_of(US);
	finish();
	return jumps;
}

START_TEST(nodes_that_have_met_show_the_same)
{
	unsigned runs = ckpt_suite_seeds(500, 20000), jumps = 0, dropped = 0;
	size_t plains = 0;

	for (unsigned seed = 1; seed <= runs; seed++)
		jumps += run_at_random(seed, &plains, &dropped);
	ck_assert_uint_ge(dropped, runs / 8);
	ck_assert_uint_ge(jumps, runs / 8); // it is about these, too
	ck_assert_uint_ge(plains, runs * 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shared_random");
	TCase *tc = tcase_create("shared_random");

	tcase_add_test(tc, nodes_that_have_met_show_the_same);
	tcase_set_timeout(tc, 300);
	suite_add_tcase(suite, tc);
	return ckpt_suite_run(suite);
}
