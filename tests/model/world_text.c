// The abstract state, as text: the same wherever it was reached.
#include "tests/model/world_in.h"

#include "core/base/util.h"
#include "core/log/log.h"

#include <inttypes.h>
#include <stdio.h>

static char text[WIRE_BYTES_MAX * 2];

static const char *key_label(const struct wire *w, char buf[64])
{
	if (!strncmp(w->key, "packs/", 6) || !strncmp(w->key, "m/", 2))
		snprintf(buf, 64, "%.2s%s", w->key, strchr(w->key, '/')[1] ? judge_object_label(w->key) : "");
	else if (!strncmp(w->key, "log/", 4) || !strncmp(w->key, "snap/", 5))
		snprintf(buf, 64, "%.3s %" PRIu64, w->key, ckpt_log_number(w->key));
	else
		snprintf(buf, 64, "%.60s", w->key);
	return buf;
}

const char *world_request_label(const struct wire *w, char buf[96])
{
	static const char *const words[] = {[WIRE_GET] = "get",       [WIRE_HEAD] = "head", [WIRE_PUT] = "put",
					    [WIRE_REMOVE] = "remove", [WIRE_LIST] = "list", [WIRE_SLEEP] = "sleep"};
	char key[64];

	snprintf(buf, 96, "%s %s", words[w->kind], key_label(w, key));
	return buf;
}

// --- The abstract state ---------------------------------------------------------------------------------------------------

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

// Ids are others in each walk.
static const char *label(const char *id, char buf[48])
{
	const struct judge_step *s = judge_step(&world_now, id);

	for (size_t i = 0; i < world_act_count; i++)
		if (!strcmp(world_acts[i].id, id)) {
			snprintf(buf, 48, "#%zu", i);
			return buf;
		}
	snprintf(buf, 48, "#%.40s", s ? s->was : "?");
	return buf;
}

static size_t put_told(char *to, size_t cap, const char *told)
{
	static char copy[WIRE_BYTES_MAX], lines[128][160];
	char *rest = copy, *line, *sorted[128], buf[48];
	size_t count = 0, len = 0;

	snprintf(copy, sizeof(copy), "%s", told);
	while ((line = strsep(&rest, "\n")) && count < 128) {
		char id[CKPT_UUID_LEN + 1];

		if (strchr("scrgl", *line) && sscanf(line + 1, " %36s", id) == 1)
			snprintf(lines[count], sizeof(lines[0]), "%c %s%s", *line, label(id, buf),
				 line + 2 + strlen(id));
		else
			snprintf(lines[count], sizeof(lines[0]), "%s", line);
		sorted[count] = lines[count];
		count++;
	}
	qsort(sorted, count, sizeof(*sorted), by_text);
	for (size_t i = 0; i < count; i++)
		len += (size_t)snprintf(to + len, cap - len, "%s\n", sorted[i]);
	return len;
}

static size_t put_node(char *to, size_t cap, const struct node *n)
{
	size_t len = (size_t)snprintf(to, cap, "%c %d %d %u\n", n->letter, n->up, n->gone, n->act);
	char buf[96];

	for (unsigned i = 0; i < SLOTS; i++)
		if (n->up && n->slots[i].busy)
			len += (size_t)snprintf(to + len, cap - len, "%s: %s %u\n", n->slots[i].act,
						world_request_label(&n->slots[i].request, buf),
						n->slots[i].request.len);
	return len + put_told(to + len, cap - len, n->up ? n->told : "");
}

const char *world_text(void)
{
	size_t len = 0, cap = sizeof(text);
	char *sorted[128], lines[128][96];
	size_t count = 0;

	*text = '\0';
	for (uint64_t i = 1; i <= world_now.seq; i++)
		len += (size_t)snprintf(text + len, cap - len, "%s\n", world_history[i]->said);
	for (size_t i = 0; i < world_bucket.count && count < 120; i++)
		if (!strncmp(world_bucket.at[i].key, "packs/", 6) || !strncmp(world_bucket.at[i].key, "m/", 2))
			snprintf(sorted[count] = lines[count], 96, "%s", judge_object_label(world_bucket.at[i].key)),
				count++;
	for (size_t i = 0; i < world_late_count; i++)
		world_request_label(&world_late[i], sorted[count] = lines[count]), count++;
	qsort(sorted, count, sizeof(*sorted), by_text);
	for (size_t i = 0; i < count; i++)
		len += (size_t)snprintf(text + len, cap - len, "%s ", sorted[i]);
	for (unsigned i = 0; i < MODEL_NODES; i++)
		len += put_node(text + len, cap - len, &world_nodes[i]);
	return text;
}

uint64_t world_hash(void)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (const char *at = world_text(); *at; at++)
		h = (h ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
	return h;
}
