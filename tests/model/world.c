#include "tests/model/world_in.h"

#include "tests/model/node.h"

#include "core/base/util.h"
#include "core/log/log.h"
#include "core/state/act.h"
#include "core/step/store.h"
#include "tests/support/suite.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum kind {
	LANDS = FAILS + 1,
	TURNS_NOW,
	ACTS_NOW,
	COLLECTS,
	SNAPSHOTS,
	OFFERS,
	CRASHES,
	MOUNTS,
	BESIDE,
	OTHERS,
	DIES
};

const struct model_scenario *world_sc;
uint64_t world_seed;
struct node world_nodes[MODEL_NODES];
struct bucket world_bucket;
struct wire world_late[LATE];
size_t world_late_count;
struct judge *world_history[ENTRIES + 1];
struct judge world_now;
struct act world_acts[ACTS];
size_t world_act_count;
static unsigned crashes, lost;
static bool others_came;
static char store_id[CKPT_UUID_LEN + 1];

static char letter_of(const char *id)
{
	for (unsigned i = 0; i < MODEL_NODES; i++)
		if (!strcmp(world_nodes[i].id, id))
			return world_nodes[i].letter;
	return 'C';
}

// --- Acts ---------------------------------------------------------------------------------------------------------------

static struct act *new_act(struct node *n, const char *words)
{
	struct act *a = &world_acts[world_act_count++];
	char path[32];

	if (world_act_count > ACTS)
		abort();
	*a = (struct act){.node = n->letter, .seen_count = n->seen_count};
	snprintf(a->text, sizeof(a->text), "%s", words);
	for (const char *at = words; (at = strchr(at, ' ')); at++)
		if (!a->bytes)
			a->bytes = (uint64_t)atoi(at + 1);
	if (sscanf(words, "unlink %31s", path) == 1) {
		char line[48];
		const char *at;

		snprintf(line, sizeof(line), "\nf %s ", path);
		at = strstr(n->told, line);
		a->removed = at ? strtoull(at + strlen(line), NULL, 10) : 0;
	}
	return a;
}

static void do_beside(struct node *n, const char *words)
{
	char verb[16], path[32], to[32] = "", names[32] = "", buf[1024];
	CLEANUP_FD int store_fd = open(n->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_FD int dirfd = openat(store_fd, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct act *a = new_act(n, words);
	int rc = -1;

	a->beside = true;
	sscanf(words, "%15s %31s %31s %31s", verb, path, to, names);
	if (!strcmp(verb, "unlink"))
		rc = unlinkat(dirfd, path, 0);
	else if (!strcmp(verb, "move"))
		rc = renameat(dirfd, path, dirfd, to);
	else if (!strcmp(verb, "write")) {
		CLEANUP_FD int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

		memset(buf, '.', sizeof(buf));
		memcpy(buf, names, strlen(names));
		rc = write(fd, buf, a->bytes) == (ssize_t)a->bytes ? 0 : -1;
	}
	a->done = !rc;
}

// Rewrites of one file, each an entry.
static void put_others(unsigned count)
{
	struct ckpt_log_position at = {0};

	for (unsigned i = 0; i < count; i++) {
		const struct judge_plain *p = judge_plain(&world_now, "", "pad");
		struct ckpt_act a = {.kind = CKPT_ACT_FILE,
				     .name = "pad",
				     .mode = 0644,
				     .content = "..",
				     .content_len = 1 + i % 2,
				     .before = p ? p->version : 0,
				     .time_ns = 1};
		struct ckpt_operation op = {
			.node = "33333333-3333-4333-8333-333333333333", .kind = CKPT_ACT_FILE, .required = true};
		struct ckpt_log_entry e = {.seq = world_now.seq + 1, .time_ns = 1, .count = 1};
		CLEANUP_FREE void *body = NULL, *data = NULL;
		const struct bucket_object *last;
		char key[CKPT_LOG_KEY_MAX];
		size_t len;

		ck_ok(ckpt_act_encode(&a, &body, &op.len));
		op.body = body;
		memcpy(op.nonce, &e.seq, sizeof(e.seq));
		memcpy(e.node, op.node, sizeof(e.node));
		memcpy(e.store_id, store_id, sizeof(e.store_id));
		ckpt_log_key(world_now.seq, key);
		last = bucket_find(&world_bucket, key);
		if (last)
			ckpt_sha256(last->data, last->len, at.sha256);
		memcpy(e.before, at.sha256, sizeof(e.before));
		ck_ok(ckpt_log_entry_encode(&e, &op, &data, &len));
		ckpt_log_key(e.seq, key);
		ck_ok(bucket_put(&world_bucket, key, data, len));
		world_read_log();
	}
}

// --- Choices ------------------------------------------------------------------------------------------------------------

struct choices {
	struct world_choice *at;
	size_t count;
};

__attribute__((format(printf, 5, 6))) static void add(struct choices *c, unsigned kind, unsigned node, unsigned slot,
						      const char *format, ...)
{
	struct world_choice *w = &c->at[c->count];
	va_list args;

	if (c->count == WORLD_CHOICES)
		return;
	*w = (struct world_choice){.kind = kind, .node = node, .slot = slot};
	va_start(args, format);
	vsnprintf(w->label, sizeof(w->label), format, args);
	va_end(args);
	c->count++;
}

static const char *next_act(const struct node *n)
{
	const char *words = n->act < MODEL_ACTS ? world_sc->acts[n->letter - 'A'][n->act] : NULL;

	return words;
}

static bool shows(const struct node *n, char kind, const char *path)
{
	char line[64];

	snprintf(line, sizeof(line), "\n%c %s", kind, path);
	for (const char *at = strstr(n->told, line); at; at = strstr(at + 1, line))
		if (strchr(" \n", at[strlen(line)]))
			return true;
	return false;
}

static bool has_deleted_step(const struct node *n, const char *name)
{
	for (const char *at = n->told; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
		struct line l;

		if (sscanf(at, "%c %36s %79s %u %c %d", &l.kind, l.id, l.name, &l.last, &l.is, &l.pinned) == 6 &&
		    (l.kind == 's' || l.kind == 'c') && l.is == 'T' && !strcmp(l.name, name))
			return true;
	}
	return false;
}

// The thing is there that the act is about.
static bool is_possible(const struct node *n, const char *words)
{
	char verb[16], what[32];

	if (!words || sscanf(words, "%15s %31s", verb, what) != 2)
		return false;
	if (!strcmp(verb, "undelete") || !strcmp(verb, "expire"))
		return has_deleted_step(n, what);
	if (!strcmp(verb, "unlink") || !strcmp(verb, "move"))
		return shows(n, 'f', what) || shows(n, 'd', what);
	return !strcmp(verb, "save") || !strcmp(verb, "write") || !strcmp(verb, "swap") || world_lists(n, what);
}

static bool is_beside(const char *words)
{
	return words && !strncmp(words, "beside ", 7);
}

static void add_requests(struct choices *c, unsigned i, struct node *n)
{
	static const char *const names[] = {"", " (user)", " (gc)"};

	for (unsigned k = 0; k < SLOTS; k++) {
		const struct wire *w = &n->slots[k].request;
		char label[96];

		if (!n->slots[k].busy)
			continue;
		world_request_label(w, label);
		add(c, ANSWERS, i, k, "%c%s: %s", n->letter, names[k], label);
		if (lost >= world_sc->lost)
			continue;
		if (w->kind == WIRE_PUT || w->kind == WIRE_REMOVE) {
			add(c, LOSES, i, k, "%c%s: %s, and the answer is lost", n->letter, names[k], label);
			if (world_late_count < LATE)
				add(c, GIVES_UP, i, k, "%c%s: gives up %s, which is under way", n->letter, names[k],
				    label);
		} else if (w->kind == WIRE_GET) {
			add(c, FAILS, i, k, "%c%s: %s fails", n->letter, names[k], label);
		}
	}
}

static void add_of_node(struct choices *c, unsigned i)
{
	struct node *n = &world_nodes[i];
	const char *words = next_act(n);

	if (n->gone)
		return;
	if (!n->up) {
		add(c, MOUNTS, i, 0, "%c mounts", n->letter);
		if (is_beside(words))
			add(c, BESIDE, i, 0, "%c, beside: %s", n->letter, words + 7);
		if (!i && world_sc->others && !others_came)
			add(c, OTHERS, i, 0, "%u entries of C", world_sc->others);
		return;
	}
	add_requests(c, i, n);
	if (!n->slots[SLOT_TURN].busy && (world_waits(n) || world_position(n) < world_now.seq))
		add(c, TURNS_NOW, i, SLOT_TURN, "%c turns", n->letter);
	if (!n->slots[SLOT_USER].busy && !is_beside(words) && is_possible(n, words))
		add(c, ACTS_NOW, i, SLOT_USER, "%c: %s", n->letter, words);
	if (!n->slots[SLOT_USER].busy && n->snapshots < world_sc->snapshots[i])
		add(c, SNAPSHOTS, i, SLOT_USER, "%c makes a snapshot of its log", n->letter);
	if (!n->slots[SLOT_USER].busy && n->offers < world_sc->offers[i] && world_position(n))
		add(c, OFFERS, i, SLOT_USER, "%c offers a snapshot", n->letter);
	if (!n->slots[SLOT_COLLECT].busy && n->collections < world_sc->collections[i])
		add(c, COLLECTS, i, SLOT_COLLECT, "%c collects garbage", n->letter);
	if (!i && crashes < world_sc->crashes)
		add(c, CRASHES, i, 0, "%c crashes", n->letter);
	if (!i && world_sc->dies)
		add(c, DIES, i, 0, "%c is gone", n->letter);
}

size_t world_choices(struct world_choice ret[WORLD_CHOICES])
{
	struct choices c = {.at = ret};

	for (unsigned i = 0; i < MODEL_NODES; i++)
		add_of_node(&c, i);
	for (unsigned i = 0; i < world_late_count; i++) {
		char label[96];

		add(&c, LANDS, 0, i, "%s is done, late", world_request_label(&world_late[i], label));
	}
	return c.count;
}

// Those for a place of the log that is taken do nothing any more.
static void forget_dead(void)
{
	for (size_t i = 0; i < world_late_count;)
		if (!strncmp(world_late[i].key, "log/", 4) && bucket_find(&world_bucket, world_late[i].key))
			world_late[i] = world_late[--world_late_count];
		else
			i++;
}

void world_land(unsigned i)
{
	static struct wire w;

	bucket_do(&world_bucket, &world_late[i], &w);
	world_late[i] = world_late[--world_late_count];
	world_read_log();
}

void world_resume(struct node *n, unsigned slot, enum world_answer_kind kind)
{
	struct slot *s = &n->slots[slot];
	static struct wire w;

	lost += kind != ANSWERS;
	if (kind == ANSWERS) {
		world_answer(n, &s->request);
	} else if (kind == LOSES) {
		bucket_do(&world_bucket, &s->request, &w);
		world_read_log();
		world_answer_error(n, &s->request, -ETIMEDOUT);
	} else {
		if (kind == GIVES_UP)
			world_late[world_late_count++] = s->request;
		world_answer_error(n, &s->request, -ETIMEDOUT);
	}
	world_run(n, slot);
}

void world_answer_all(struct node *n, unsigned slot)
{
	for (unsigned i = 0; n->up && n->slots[slot].busy && !*world_wrong(); i++) {
		if (i == 10000)
			world_violate("%c never ends: %s", n->letter, n->slots[slot].act);
		else
			world_resume(n, slot, ANSWERS);
	}
}

void world_do_whole(struct node *n, unsigned slot, const char *words, int act_number)
{
	world_begin_act(n, slot, words, act_number);
	world_answer_all(n, slot);
}

bool world_is_answer(const struct world_choice *c)
{
	return c->kind == ANSWERS;
}

void world_violate_script(const char *line)
{
	world_violate("the script cannot be followed: %s", line);
}

void world_do(const struct world_choice *c)
{
	struct node *n = &world_nodes[c->node];

	switch ((enum kind)c->kind) {
	case LANDS:
		world_land(c->slot);
		break;
	case TURNS_NOW:
		world_begin_act(n, SLOT_TURN, "turn", -1);
		break;
	case ACTS_NOW:
		(void)new_act(n, next_act(n));
		world_begin_act(n, SLOT_USER, world_sc->acts[c->node][n->act++], (int)world_act_count - 1);
		break;
	case COLLECTS:
		n->collections++;
		world_begin_act(n, SLOT_COLLECT, "collect", -1);
		break;
	case SNAPSHOTS:
		n->snapshots++;
		world_begin_act(n, SLOT_USER, "snapshot", -1);
		break;
	case OFFERS:
		n->offers++;
		world_begin_act(n, SLOT_USER, "offer", -1);
		break;
	case CRASHES:
		crashes++;
		world_crash(n);
		break;
	case DIES:
		world_crash(n);
		n->gone = true;
		break;
	case MOUNTS:
		world_start(n);
		world_begin_act(n, SLOT_TURN, "mount", -1);
		break;
	case BESIDE:
		do_beside(n, world_sc->acts[c->node][n->act++] + 7);
		break;
	case OTHERS:
		others_came = true;
		put_others(world_sc->others);
		if (world_nodes[1].up && !world_nodes[1].slots[SLOT_TURN].busy) {
			world_do_whole(&world_nodes[1], SLOT_TURN, "turn", -1);
			world_look(&world_nodes[1]);
		}
		break;
	default:
		world_resume(n, c->slot, (enum world_answer_kind)c->kind);
	}
	forget_dead();
	if (c->kind != LANDS && c->kind != OTHERS)
		world_look(n);
}

// --- Beginning and end ---------------------------------------------------------------------------------------------------

static void read_node_id(struct node *n)
{
	CLEANUP_FD int dirfd = open(n->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_FD int fd = openat(dirfd, "store.json", O_RDONLY | O_CLOEXEC);
	char buf[4096];
	ssize_t len = read(fd, buf, sizeof(buf) - 1);
	const char *at;

	buf[MAX(len, 0)] = '\0';
	at = strstr(buf, "\"node\"");
	if (!at || sscanf(at, "\"node\": \"%36s", n->id) != 1)
		world_violate("a node without a name");
}

// Until nobody has anything to do.
void world_exchange_all(void)
{
	for (unsigned i = 0, idle = 0; idle < MODEL_NODES && !*world_wrong(); i++) {
		struct node *n = &world_nodes[i % MODEL_NODES];
		uint64_t seq = world_now.seq;

		if (i == TURNS)
			world_violate("an operation can never be finished: %c waits",
				      world_waits(&world_nodes[0]) ? 'A' : 'B');
		if (n->gone) {
			idle++;
			continue;
		}
		world_do_whole(n, SLOT_TURN, "turn", -1);
		world_look(n);
		idle = world_waits(n) || world_position(n) < world_now.seq || world_now.seq != seq ? 0 : idle + 1;
	}
}

static char *make_identity(void)
{
	json_t *identity;
	int64_t created_ns;
	char *text_of_it;

	ck_ok(ckpt_store_identity_new(&identity));
	ck_ok(ckpt_store_identity_check(identity, store_id, &created_ns));
	text_of_it = json_dumps(identity, JSON_COMPACT);
	json_decref(identity);
	return text_of_it;
}

void world_begin(const struct model_scenario *scenario, uint64_t of_seed)
{
	static char dir[PATH_MAX];
	CLEANUP_FREE char *identity = NULL;
	char words[600];
	struct timespec ts;

	if (!*dir)
		ckpt_temp_dir(dir);
	clock_gettime(CLOCK_REALTIME, &ts);
	world_sc = scenario;
	world_seed = of_seed;
	world_begin_checks();
	bucket_empty(&world_bucket);
	world_bucket.now_ns = ts.tv_sec * INT64_C(1000000000) + INT64_C(3600000000000);
	world_late_count = world_act_count = crashes = lost = 0;
	others_came = false;
	world_now = (struct judge){0};
	judge_begin(letter_of);
	world_history[0] = malloc(sizeof(world_now));
	*world_history[0] = world_now;
	identity = make_identity();
	bucket_put(&world_bucket, "store.json", identity, strlen(identity));
	for (unsigned i = 0; i < MODEL_NODES; i++) {
		struct node *n = &world_nodes[i];

		*n = (struct node){.letter = (char)('A' + i)};
		snprintf(n->path, sizeof(n->path), "%s/%c", dir, n->letter);
		snprintf(words, sizeof(words), "make %s", identity);
		world_start(n);
		world_do_whole(n, SLOT_TURN, words, -1);
		read_node_id(n);
		world_do_whole(n, SLOT_TURN, "mount", -1);
		world_look(n);
		for (unsigned k = 0; !i && k < MODEL_ACTS && world_sc->first[k]; k++) {
			struct act *a = new_act(n, world_sc->first[k]);

			world_do_whole(n, SLOT_USER, a->text, (int)world_act_count - 1);
			if (!a->done)
				world_violate("%s does not go", a->text);
			world_look(n);
			world_do_whole(n, SLOT_TURN, "turn", -1);
		}
	}
	world_exchange_all();
}

void world_end(void)
{
	for (unsigned i = 0; i < MODEL_NODES; i++) {
		if (world_nodes[i].up)
			world_crash(&world_nodes[i]);
		ckpt_temp_empty(world_nodes[i].path, 1);
	}
	for (size_t i = 0; i <= ENTRIES; i++)
		free(TAKE_PTR(world_history[i]));
}
