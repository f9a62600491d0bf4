// The checks after each step: the log, and what nodes show.
#include "tests/model/world_in.h"

#include "core/base/util.h"
#include "core/log/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdarg.h>
#include <stdlib.h>

static char wrong[1024];

void world_begin_checks(void)
{
	*wrong = '\0';
}

void world_violate(const char *format, ...)
{
	va_list args;

	if (*wrong)
		return;
	va_start(args, format);
	vsnprintf(wrong, sizeof(wrong), format, args);
	va_end(args);
}

const char *world_wrong(void)
{
	return wrong;
}

// --- The log ------------------------------------------------------------------------------------------------------------

// Nobody deletes or replaces what its user had not seen.
static bool was_meant(char node, const char *id)
{
	for (size_t i = 0; i < world_act_count; i++)
		if (world_acts[i].node == node &&
		    (world_acts[i].unknown ||
		     (!strncmp(world_acts[i].text, "delete ", 7) && !strcmp(world_acts[i].id, id)) ||
		     !strcmp(world_acts[i].replaced, id)))
			return true;
	return false;
}

unsigned world_count_deletions(char node, const char *id)
{
	unsigned count = 0;

	for (size_t i = 0; i < world_act_count; i++)
		count += world_acts[i].node == node &&
			 (world_acts[i].unknown || !strcmp(world_acts[i].replaced, id) ||
			  (!strncmp(world_acts[i].text, "delete ", 7) && !strcmp(world_acts[i].id, id)));
	return count;
}

bool world_has_seen(const struct node *n, uint64_t bytes)
{
	for (size_t i = 0; i < n->seen_count; i++)
		if (n->seen[i] == bytes)
			return true;
	for (size_t i = 0; i < world_act_count; i++)
		if (world_acts[i].node == n->letter && world_acts[i].bytes == bytes)
			return true;
	return false;
}

// Its user has removed a file after the node had shown that content, or has done something beside the mount.
static bool has_removed(const struct node *n, uint64_t bytes)
{
	for (size_t i = 0; i < world_act_count; i++) {
		const struct act *a = &world_acts[i];
		bool unlinks = a->node == n->letter && !strncmp(a->text, "unlink ", 7);

		if (a->node == n->letter && a->beside)
			return true;
		for (size_t k = 0; unlinks && k < a->seen_count; k++)
			if (n->seen[k] == bytes)
				return true;
		for (size_t k = 0; unlinks && k < i; k++)
			if (world_acts[k].node == n->letter && world_acts[k].bytes == bytes)
				return true;
	}
	return false;
}

static void check_meant(void)
{
	for (size_t i = 0; i < world_now.took_count; i++)
		for (unsigned k = 0; k < MODEL_NODES; k++)
			if (world_nodes[k].letter == world_now.took[i].node && world_now.took[i].removes &&
			    !has_removed(&world_nodes[k], world_now.took[i].bytes))
				world_violate("T3: %c removes a plain file that its user has not: %s",
					      world_nodes[k].letter, world_now.said);
	for (size_t i = 0; i < world_now.took_count; i++)
		for (unsigned k = 0; k < MODEL_NODES; k++)
			if (world_nodes[k].letter == world_now.took[i].node &&
			    !world_has_seen(&world_nodes[k], world_now.took[i].bytes))
				world_violate("T2, T3: %c replaces or removes a plain file that it has never shown: %s",
					      world_nodes[k].letter, world_now.said);
	for (size_t i = 0; i < world_now.step_count; i++) {
		const struct judge_step *s = &world_now.steps[i];

		if (s->deleted_by && s->node != s->deleted_by && !was_meant(s->deleted_by, s->id))
			world_violate("%c deletes %s of %c, which its user had not seen", s->deleted_by, s->name,
				      s->node);
		for (unsigned k = 0; k < MODEL_NODES; k++)
			if (s->deletions[world_nodes[k].letter & 7] >
				    world_count_deletions(world_nodes[k].letter, s->id) &&
			    s->node != world_nodes[k].letter)
				world_violate("%c deletes %s again, which its user has not", world_nodes[k].letter,
					      s->name);
		if (s->replaced_by && !was_meant(s->replaced_by, s->id))
			world_violate("%c replaces %s of %c, which its user had not seen", s->replaced_by, s->name,
				      s->node);
	}
}

void world_read_log(void)
{
	const struct judge_step *step;
	const char *key;

	while (judge_read(&world_now, &world_bucket)) {
		if (world_now.seq >= ENTRIES)
			abort();
		world_history[world_now.seq] = malloc(sizeof(world_now));
		*world_history[world_now.seq] = world_now;
		check_meant();
	}
	if (*world_now.wrong)
		world_violate("%s: entry %" PRIu64 ", %s", world_now.wrong, world_now.seq, world_now.said);
	key = judge_missing(&world_now, &world_bucket, &step);
	if (key)
		world_violate("I7: a step that is %s needs an object that was deleted: %s, %s",
			      step->is == 'L' ? "listed" : "in the trash", step->name, judge_object_label(key));
}

// --- What a node shows --------------------------------------------------------------------------------------------------

bool world_is_busy(const struct node *n)
{
	return n->slots[SLOT_TURN].busy || n->slots[SLOT_USER].busy || n->slots[SLOT_COLLECT].busy;
}

bool world_tells(const struct node *n, const char *kinds, const char *id)
{
	for (const char *at = n->told; (at = strstr(at, id)); at++)
		if (at - n->told >= 2 && strchr(kinds, at[-2]))
			return true;
	return false;
}

static void check_line(struct node *n, const struct judge *j, const struct line *l)
{
	const struct judge_step *s = judge_step(j, l->id);

	if (!s || s->is == 'X')
		world_violate("%c shows %s, which the log does not have at %" PRIu64, n->letter, l->name, j->seq);
	else if (strcmp(s->name, l->name) || s->is != l->is || s->pinned != !!l->pinned)
		world_violate("%c shows %s %c%s where the log says %s %c%s", n->letter, l->name, l->is,
			      l->pinned ? " pinned" : "", s->name, s->is, s->pinned ? " pinned" : "");
}

static void check_steps(struct node *n, const struct judge *j)
{
	for (const char *at = n->told; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
		struct line l;

		if (sscanf(at, "%c %36s %79s %u %c %d", &l.kind, l.id, l.name, &l.last, &l.is, &l.pinned) != 6)
			continue;
		if (l.kind == 's' || l.kind == 'r')
			check_line(n, j, &l);
		if ((l.kind == 's' || l.kind == 'c') && !world_is_busy(n) && (l.is == 'L') != world_tells(n, "l", l.id))
			world_violate("%c: clients see %s otherwise than its log says", n->letter, l.name);
	}
	for (size_t i = 0; i < j->step_count; i++)
		if (j->steps[i].is != 'X' && !world_tells(n, "sr", j->steps[i].id))
			world_violate("%c does not know %s, which the log has", n->letter, j->steps[i].name);
}

static bool has_saved(const struct node *n, const char *name)
{
	char words[JUDGE_NAME + 8];

	snprintf(words, sizeof(words), "save %s ", name);
	for (size_t i = 0; i < world_act_count; i++)
		if (world_acts[i].node == n->letter && !strncmp(world_acts[i].text, words, strlen(words)))
			return true;
	return false;
}

bool world_lists(const struct node *n, const char *name)
{
	char words[JUDGE_NAME + 8];

	snprintf(words, sizeof(words), " %s\n", name);
	for (const char *at = strstr(n->told, "\nl "); at; at = strstr(at + 1, "\nl ")) {
		const char *end = strchr(at + 1, '\n'), *found = strstr(at + 1, words);

		if (found && found < end)
			return true;
	}
	return false;
}

static void check_trackers(struct node *n, const struct judge *j)
{
	for (const char *at = strstr(n->told, "\nf "); at; at = strstr(at + 1, "\nf ")) {
		char path[JUDGE_NAME], names[32];

		if (sscanf(at, "\nf %79s %*u %31s", path, names) != 2 || !strcmp(names, "-"))
			continue;
		if (!judge_has_saved(j, names) && !has_saved(n, names))
			world_violate("B: %c shows the tracker %s, and not the step %s that it names", n->letter, path,
				      names);
		if (world_sc->strict && !strcmp(path, "T") && !world_lists(n, names))
			world_violate("%c shows the tracker %s, and the step %s that it names is not listed", n->letter,
				      path, names);
	}
}

static void see(struct node *n)
{
	for (const char *at = strstr(n->told, "\nf "); at; at = strstr(at + 1, "\nf ")) {
		unsigned long long bytes;

		if (sscanf(at, "\nf %*s %llu", &bytes) == 1 && !world_has_seen(n, bytes) && n->seen_count < SEEN)
			n->seen[n->seen_count++] = bytes;
	}
}

bool world_has_expired(char node, const char *id)
{
	for (size_t i = 0; i < world_act_count; i++)
		if (world_acts[i].node == node && (world_acts[i].done || world_acts[i].unknown) &&
		    !strncmp(world_acts[i].text, "expire ", 7) && !strcmp(world_acts[i].id, id))
			return true;
	return false;
}

static void check_acts(struct node *n)
{
	for (size_t i = 0; i < world_act_count; i++)
		if (world_acts[i].node == n->letter && world_acts[i].done && !strncmp(world_acts[i].text, "save ", 5) &&
		    !world_has_expired(n->letter, world_acts[i].id) && !world_tells(n, "scg", world_acts[i].id) &&
		    !judge_step(&world_now, world_acts[i].id))
			world_violate("P1: %c: %s was acknowledged, and is in no log", n->letter, world_acts[i].text);
}

uint64_t world_position(const struct node *n)
{
	return strtoull(n->told + (*n->told ? 2 : 0), NULL, 10);
}

void world_look(struct node *n)
{
	if (!n->up || (n->slots[SLOT_TURN].busy && strcmp(n->slots[SLOT_TURN].act, "turn")))
		return;
	memcpy(n->told, world_ask(n, "S"), sizeof(n->told));
	see(n);
	if (!*n->told || world_position(n) > world_now.seq || !world_history[world_position(n)])
		return;
	check_steps(n, world_history[world_position(n)]);
	check_trackers(n, world_history[world_position(n)]);
	check_acts(n);
}

bool world_waits(const struct node *n)
{
	unsigned long long steps = 0, files = 0;
	const char *at = strstr(n->told, "\nq ");

	if (at)
		sscanf(at, "\nq %llu %llu", &steps, &files);
	return !at || steps || files;
}
