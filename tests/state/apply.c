// The state of a log, for a test in another language: commands on stdin, one a line, and an answer to each on stdout. test_state.py
// compares the answers with those of a model (reference.py).
//
//	act KIND NODE NUMBER REQUIRED STEP VERSION FLAGS TIME REPLACES FOLDER NAME KEY BEFORE VALUE UID COMM
//	                      an act for what follows, the next one from 0; "-" is empty. No answer.
//	run ACT...            a new state, and these acts: the code of each, then the state
//	walk DEPTH            each sequence of acts up to that length: a line for each, in the order of a tree's walk, with the code of its
//	                      last act and 16 digits of the SHA-256 of the state
//	log                   a new, empty log. No answer.
//	entry ACT...          an entry of these acts at its end: the entry's bytes
//	put SEQ HEX           in place of whatever is at that place, "-": nothing. No answer.
//	read                  the log from its beginning: the code, the position, the state
//	snapshot              of the state that was read last, with its position. No answer.
//	resume                the log from the snapshot on: as read
//
// An act has the number that it was given in run and walk as the SEQ of its record; in a log, that of its entry. A state is one line:
// the nodes with their numbers, then the steps, then the values. Each state that is told is looked at from all sides first; what does not hold ends
// the program with assert().
#include "backends/backends.h"
#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/log/log.h"
#include "core/state/act.h"
#include "core/state/state.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define STORE "11111111-1111-4111-8111-111111111111"
#define NODE "22222222-2222-4222-8222-222222222222"

enum { ACTS_MAX = 64 * 1024, DEPTH_MAX = 16, OFFSET = 1000, NAMES_MAX = 16 };

static struct ckpt_operation acts[ACTS_MAX];
static size_t act_count;

// Of the acts, sorted.
struct names {
	char at[NAMES_MAX][CKPT_UUID_LEN + 1];
	size_t count;
};
static struct names nodes, keys;

static struct ckpt_objects *objects; // of the log
static struct ckpt_log_position read_at, snapshot_at;
static struct ckpt_state *read_state;
static void *snapshot;
static size_t snapshot_len;

// --- Acts ---------------------------------------------------------------------------------------------------------------

static const char *word(void)
{
	const char *w = strtok(NULL, " \n");

	assert(w);
	return strcmp(w, "-") ? w : "";
}

static void add_name(struct names *names, const char *name)
{
	size_t i = 0;

	while (i < names->count && strcmp(names->at[i], name) < 0)
		i++;
	if (i < names->count && !strcmp(names->at[i], name))
		return;
	assert(names->count < NAMES_MAX && strlen(name) <= CKPT_UUID_LEN);
	memmove(names->at[i + 1], names->at[i], (names->count++ - i) * sizeof(*names->at));
	strcpy(names->at[i], name);
}

static void make_record(struct ckpt_act *a)
{
	struct ckpt_record r = {.store_id = STORE};
	struct ckpt_summary *s = &r.summary;
	void *record;

	strcpy(s->session, a->step);
	strcpy(s->folder_id, a->folder_id);
	strcpy(s->name, a->name);
	s->version = a->version;
	s->number = ckpt_name_number(a->name);
	s->committed_ns = a->time_ns;
	s->pinned = a->flags & CKPT_FLAG_PINNED;
	s->temporary = a->flags & CKPT_FLAG_TEMPORARY;
	assert(!ckpt_record_encode(&r, &record, &a->record_len));
	a->record = record;
}

static void take_act(void)
{
	struct ckpt_operation *op = &acts[act_count++];
	struct ckpt_act a = {0};
	uint16_t kind;
	void *body;

	assert(act_count < ACTS_MAX);
	op->kind = (uint16_t)strtoul(word(), NULL, 10);
	strcpy(op->node, word());
	add_name(&nodes, op->node);
	op->number = strtoull(word(), NULL, 10);
	op->required = *word() == '1';
	strcpy(a.step, word());
	a.version = (uint32_t)strtoul(word(), NULL, 10);
	a.flags = (uint32_t)strtoul(word(), NULL, 10);
	a.time_ns = strtoll(word(), NULL, 10);
	strcpy(a.replaces, word());
	strcpy(a.folder_id, word());
	strcpy(a.name, word());
	strcpy(a.key, word());
	a.before = strtoull(word(), NULL, 10);
	a.value = word();
	a.value_len = strlen(a.value);
	op->actor.uid = (uint32_t)strtoul(word(), NULL, 10);
	strcpy(op->actor.comm, word());
	if (*a.key)
		add_name(&keys, a.key);
	kind = op->kind < CKPT_ACT_KINDS ? op->kind : CKPT_ACT_DELETE; // a body of some length
	a.version = a.version || kind == CKPT_ACT_RENAME ? a.version : 1;
	a.kind = kind;
	if (ckpt_act_has_record(kind))
		make_record(&a);
	assert(!ckpt_act_encode(&a, &body, &op->len));
	op->body = body;
	free((void *)a.record);
}

static size_t next_act(const char *w)
{
	size_t i = strtoull(w, NULL, 10);

	assert(i < act_count);
	return i;
}

// --- A state as text ------------------------------------------------------------------------------------------------------

static char text[1 << 20];
static size_t text_len;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(text + text_len, sizeof(text) - text_len, format, args);
	va_end(args);
	assert(len >= 0 && (size_t)len < sizeof(text) - text_len);
	text_len += (size_t)len;
}

// The bytes that a version's record is said to be at.
typedef const void *bytes_at_fn(const struct ckpt_span *span, size_t *ret_len);

static const void *in_act(const struct ckpt_span *span, size_t *ret_len)
{
	const struct ckpt_operation *op = &acts[span->seq - 1];

	assert(span->seq <= act_count && span->offset >= OFFSET && span->offset - OFFSET < op->len);
	*ret_len = op->len - (span->offset - OFFSET);
	return (const uint8_t *)op->body + (span->offset - OFFSET);
}

static const void *in_log(const struct ckpt_span *span, size_t *ret_len)
{
	static void *entry;
	char key[CKPT_LOG_KEY_MAX];
	size_t len;

	free(entry);
	ckpt_log_key(span->seq, key);
	assert(!ckpt_objects_get_all(objects, key, CKPT_LOG_ENTRY_BYTES_MAX, &entry, &len, NULL));
	assert(span->offset <= len);
	*ret_len = len - span->offset;
	return (const uint8_t *)entry + span->offset;
}

static void say_version(const struct ckpt_state *s, const struct ckpt_state_step *step,
			const struct ckpt_state_version *v, bytes_at_fn *bytes_at)
{
	struct ckpt_record r;
	const void *bytes;
	size_t len;

	assert(ckpt_state_version(step, v->version) == v);
	bytes = bytes_at(&v->record, &len);
	assert(v->record.len <= len && !ckpt_record_decode(bytes, v->record.len, &r));
	assert(!strcmp(r.summary.session, step->id));
	say(" %" PRIu32 "%s%s%s@%" PRId64 "=%" PRIu64 "/%" PRIu32 "%c<%s:%" PRIu32 "@%s", v->version,
	    v->deleted ? "d" : "", v->pinned ? "p" : "", v->temporary ? "t" : "", v->committed_ns, v->record.seq,
	    r.summary.version, "se=r"[v->files], v -> by.actor.comm, v->by.actor.uid, ckpt_state_node(s, v->by.node));
	ckpt_record_done(&r);
}

static void say_step(const struct ckpt_state *s, const struct ckpt_state_step *step, bytes_at_fn *bytes_at)
{
	const struct ckpt_state_step *listed = ckpt_state_listed(s, step->is.folder_id, step->is.name);

	assert(ckpt_state_step(s, step->id) == step && !strcmp(step->is.session, step->id));
	assert(step->deleted_by ? listed != step : listed == step);
	say(" | %s %s/%s #%" PRId64 " %" PRIu32 "%s%s@%" PRId64 " by %" PRIu32 "@%" PRId64 ":", step->id,
	    step->is.folder_id, step->is.name, step->is.number, step->is.version, step->is.pinned ? "p" : "",
	    step->is.temporary ? "t" : "", step->is.committed_ns, step->deleted_by, step->deleted_ns);
	for (size_t i = 0; i < step->count; i++)
		say_version(s, step, &step->versions[i], bytes_at);
}

static void say_state(const struct ckpt_state *s, bytes_at_fn *bytes_at)
{
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	size_t count;

	text_len = 0;
	text[0] = '\0';
	assert(!ckpt_state_steps(s, &steps, &count) && count == ckpt_state_count(s));
	for (size_t i = 0; i < nodes.count; i++)
		if (ckpt_state_number(s, nodes.at[i]))
			say("%s=%" PRIu64 " ", nodes.at[i], ckpt_state_number(s, nodes.at[i]));
	for (size_t i = 0; i < count; i++) {
		assert(!i || strcmp(steps[i - 1]->id, steps[i]->id) < 0);
		say_step(s, steps[i], bytes_at);
	}
	for (size_t i = 0; i < keys.count; i++) {
		const struct ckpt_state_value *v = ckpt_state_value(s, keys.at[i]);

		assert(!v || !strcmp(v->key, keys.at[i]));
		if (v)
			say(" | %s@%" PRIu64 "=%s", v->key, v->seq, v->text);
	}
}

// Its bytes make the same state, which has the same bytes.
static void check_bytes(const struct ckpt_state *s, bytes_at_fn *bytes_at)
{
	CLEANUP_FREE void *bytes = NULL, *again = NULL;
	CLEANUP_FREE char *before = NULL;
	struct ckpt_state *back;
	size_t len, again_len;

	say_state(s, bytes_at);
	before = strdup(text);
	assert(before && !ckpt_state_encode(s, &bytes, &len) && !ckpt_state_decode(bytes, len, &back));
	say_state(back, bytes_at);
	assert(!strcmp(text, before));
	assert(!ckpt_state_encode(back, &again, &again_len));
	assert(len == again_len && !memcmp(bytes, again, len));
	ckpt_state_free(back);
}

// --- Sequences of acts ----------------------------------------------------------------------------------------------------

static int apply(struct ckpt_state *s, size_t act)
{
	struct ckpt_span at = {.seq = act + 1, .offset = OFFSET, .len = (uint32_t)acts[act].len};

	return ckpt_state_apply(s, STORE, &acts[act], &at);
}

static void run(void)
{
	struct ckpt_state *s = ckpt_state_new();

	assert(s);
	for (const char *w; (w = strtok(NULL, " \n"));)
		printf("%d ", apply(s, next_act(w)));
	check_bytes(s, in_act);
	printf("; %s\n", text);
	ckpt_state_free(s);
}

static void walk(size_t *sequence, size_t len, size_t depth)
{
	for (size_t act = 0; act < act_count; act++) {
		struct ckpt_state *s = ckpt_state_new();
		uint8_t digest[CKPT_SHA256_LEN];
		int rc = 0;

		assert(s);
		sequence[len] = act;
		for (size_t i = 0; i <= len; i++)
			rc = apply(s, sequence[i]);
		say_state(s, in_act);
		ckpt_sha256(text, text_len, digest);
		printf("%d ", rc);
		for (size_t i = 0; i < 8; i++)
			printf("%02x", digest[i]);
		putchar('\n');
		ckpt_state_free(s);
		if (len + 1 < depth)
			walk(sequence, len + 1, depth);
	}
}

// --- A log ------------------------------------------------------------------------------------------------------------------

static int pass_none(void *arg, const struct ckpt_log_entry *entry)
{
	(void)arg, (void)entry;
	return 0;
}

static int pass(void *arg, const struct ckpt_log_entry *entry)
{
	struct ckpt_operation op;

	(void)arg;
	for (size_t cursor = 0; ckpt_log_entry_next(entry, &cursor, &op);) {
		struct ckpt_span at = {.seq = entry->seq,
				       .offset = (uint32_t)((const uint8_t *)op.body - entry->data),
				       .len = (uint32_t)op.len};
		int rc = ckpt_state_apply(read_state, entry->store_id, &op, &at);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static void new_log(void)
{
	ckpt_objects_close(objects);
	assert(!ckpt_mem_new(&objects));
}

static void add_entry(void)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	struct ckpt_operation ops[64];
	char key[CKPT_LOG_KEY_MAX];
	struct ckpt_log *log;
	uint32_t count = 0;
	size_t len;

	for (const char *w; (w = strtok(NULL, " \n"));) {
		assert(count < ARRAY_LEN(ops));
		ops[count++] = acts[next_act(w)];
	}
	assert(!ckpt_log_new(objects, STORE, NODE, NULL, false, pass_none, NULL, &log));
	assert(!ckpt_log_read(log) && !ckpt_log_append(log, ops, count, false));
	ckpt_log_key(ckpt_log_position(log).seq, key);
	ckpt_log_free(log);
	assert(!ckpt_objects_get_all(objects, key, CKPT_LOG_ENTRY_BYTES_MAX, (void **)&bytes, &len, NULL));
	for (size_t i = 0; i < len; i++)
		printf("%02x", bytes[i]);
	putchar('\n');
}

static uint8_t digit(char c)
{
	return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static void put(void)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	uint64_t seq = strtoull(word(), NULL, 10);
	const char *hex = strtok(NULL, " \n");
	size_t len = hex ? strlen(hex) / 2 : 0;
	char key[CKPT_LOG_KEY_MAX];
	int rc;

	ckpt_log_key(seq, key);
	rc = ckpt_objects_remove(objects, key);
	assert(!rc || rc == -ENOENT);
	if (hex && !strcmp(hex, "-"))
		return;
	bytes = malloc(len + 1);
	assert(bytes);
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
	assert(!ckpt_objects_put(objects, key, bytes, len, NULL));
}

// From there on, into the state.
static void read_log(const struct ckpt_log_position *from)
{
	struct ckpt_log *log;
	int rc;

	assert(!ckpt_log_new(objects, STORE, NODE, from, false, pass, NULL, &log));
	rc = ckpt_log_read(log);
	read_at = ckpt_log_position(log);
	ckpt_log_free(log);
	check_bytes(read_state, in_log);
	printf("%d %" PRIu64 " ; %s\n", rc, read_at.seq, text);
}

static void read_all(void)
{
	ckpt_state_free(read_state);
	read_state = ckpt_state_new();
	assert(read_state);
	read_log(NULL);
}

static void take_snapshot(void)
{
	free(snapshot);
	snapshot = NULL;
	assert(!ckpt_state_encode(read_state, &snapshot, &snapshot_len));
	snapshot_at = read_at;
}

static void resume(void)
{
	ckpt_state_free(read_state);
	assert(!ckpt_state_decode(snapshot, snapshot_len, &read_state));
	read_log(&snapshot_at);
}

static void obey(const char *command)
{
	size_t sequence[DEPTH_MAX], depth;

	if (!strcmp(command, "act")) {
		take_act();
	} else if (!strcmp(command, "run")) {
		run();
	} else if (!strcmp(command, "walk")) {
		depth = strtoull(word(), NULL, 10);
		assert(depth && depth <= DEPTH_MAX);
		walk(sequence, 0, depth);
	} else if (!strcmp(command, "log")) {
		new_log();
	} else if (!strcmp(command, "entry")) {
		add_entry();
	} else if (!strcmp(command, "put")) {
		put();
	} else if (!strcmp(command, "read")) {
		read_all();
	} else if (!strcmp(command, "snapshot")) {
		take_snapshot();
	} else {
		assert(!strcmp(command, "resume"));
		resume();
	}
}

int main(void)
{
	CLEANUP_FREE char *line = NULL;
	size_t cap = 0;

	new_log();
	while (getline(&line, &cap, stdin) > 0)
		obey(strtok(line, " \n"));
	for (size_t i = 0; i < act_count; i++)
		free((void *)acts[i].body);
	ckpt_objects_close(objects);
	ckpt_state_free(read_state);
	free(snapshot);
	return 0;
}
