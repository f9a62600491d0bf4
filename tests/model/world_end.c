// The end of a walk: all goes on without a fault, and then all that was done is there.
#include "tests/model/world_in.h"

#include "core/base/util.h"
#include "core/log/log.h"

#include <inttypes.h>
#include <stdio.h>

// --- The end of a walk ----------------------------------------------------------------------------------------------------

static void settle_node(struct node *n)
{
	if (n->gone)
		return;
	if (!n->up) {
		world_start(n);
		world_do_whole(n, SLOT_TURN, "mount", -1);
	}
	world_answer_all(n, SLOT_USER);
	world_answer_all(n, SLOT_TURN);
	for (unsigned i = 0; n->up && n->slots[SLOT_COLLECT].busy && i < 10000 && !*world_wrong(); i++) {
		if (n->slots[SLOT_COLLECT].request.kind == WIRE_SLEEP)
			world_do_whole(n, SLOT_TURN, "turn", -1);
		world_resume(n, SLOT_COLLECT, ANSWERS);
	}
	world_look(n);
}

// Of a later act of this node on the same path.
static bool is_written_over(size_t i)
{
	char verb[16], path[32], other[32];

	sscanf(world_acts[i].text, "%15s %31s", verb, path);
	for (size_t k = i + 1; k < world_act_count; k++)
		if (world_acts[k].node == world_acts[i].node &&
		    sscanf(world_acts[k].text, "%15s %31s", verb, other) == 2 && !strcmp(path, other) &&
		    (!strcmp(verb, "write") || !strcmp(verb, "swap") || !strcmp(verb, "unlink") ||
		     !strcmp(verb, "move")))
			return true;
	return false;
}

// In some version: of two nodes that add to one step at once, the second has the newest, and that of the first is kept as an older one
// (core/state/shared.h).
static bool has_bytes(const struct judge_step *s, uint64_t bytes)
{
	for (size_t i = 0; i < s->ever_count; i++)
		if (s->ever[i] == bytes)
			return true;
	return false;
}

static bool is_file_anywhere(uint64_t bytes)
{
	for (size_t i = 0; i < world_now.step_count; i++)
		if (has_bytes(&world_now.steps[i], bytes))
			return true;
	return false;
}

static bool any_did(const char *verb, const char *id)
{
	for (size_t i = 0; i < world_act_count; i++)
		if ((world_acts[i].done || world_acts[i].unknown) && !strncmp(world_acts[i].text, verb, strlen(verb)) &&
		    !strcmp(world_acts[i].id, id))
			return true;
	return false;
}

// Its own user has, or has let it expire in the trash.
static bool has_deleted(char node, const char *id)
{
	return world_has_expired(node, id) || world_count_deletions(node, id);
}

static bool any_replaced(const char *id)
{
	for (size_t i = 0; i < world_act_count; i++)
		if ((world_acts[i].done || world_acts[i].unknown) && !strcmp(world_acts[i].replaced, id))
			return true;
	return false;
}

// Another act, of anybody, takes the file away or gives it other bytes.
static bool is_edited_since(size_t i)
{
	char path[32] = "", verb[16], name[32], other[32];

	sscanf(world_acts[i].text, "%15s %31s %31s", verb, name, path);
	if (!strcmp(verb, "save"))
		strcpy(path, "f");
	for (size_t k = 0; k < world_act_count; k++)
		if (k != i && sscanf(world_acts[k].text, "%15s %31s %31s", verb, name, other) == 3 &&
		    (!strcmp(verb, "edit") || !strcmp(verb, "cut")) && !strcmp(other, path) &&
		    !strcmp(world_acts[k].id, world_acts[i].id))
			return true;
	return false;
}

// Nobody has given it another name since, or at the same time.
static bool is_last_rename(size_t i)
{
	for (size_t k = 0; k < world_act_count; k++)
		if (k != i && !strncmp(world_acts[k].text, world_acts[i].text, 5) &&
		    !strcmp(world_acts[k].id, world_acts[i].id) && (k > i || world_acts[k].node != world_acts[i].node))
			return false;
	return true;
}

// Another node has deleted it: what this one has changed of it is pushed when it is undeleted.
static bool waits_in_trash(const struct act *a, const struct judge_step *s)
{
	return s && s->is != 'L' && world_tells(&world_nodes[a->node - 'A'], "c", a->id);
}

// A content that was on its way in a crash, and comes late, is known to nobody as removed (core/remote/tree_seen.h).
static bool may_come_back(const struct judge_plain *p)
{
	return p->node == 'A' && world_nodes[0].runs > 1;
}

static void check_act(size_t i)
{
	const struct act *a = &world_acts[i];
	const struct judge_step *s = *a->id ? judge_step(&world_now, a->id) : NULL;
	char verb[16];
	bool deleted = *a->id && (any_did("delete", a->id) || any_replaced(a->id));

	sscanf(a->text, "%15s", verb);
	if (!strcmp(verb, "save") && !s && !deleted)
		world_violate("P1: %c: %s is in no log", a->node, a->text);
	else if (!strcmp(verb, "save") && s && s->is != 'L' && !s->replaced_by && !deleted)
		world_violate("%c: %s is not listed any more, and nobody has deleted it", a->node, a->text);
	else if ((!strcmp(verb, "save")                           ? !deleted
		  : !strcmp(verb, "add") || !strcmp(verb, "edit") ? !has_deleted(a->node, a->id)
								  : false) &&
		 !is_edited_since(i) && !is_file_anywhere(a->bytes) && !waits_in_trash(a, s))
		world_violate("%c: a file that was added is lost: %s", a->node, a->text);
	else if (!strcmp(verb, "delete") && s && s->is == 'L' && !s->pinned && !any_did("undelete", a->id) &&
		 !s->again) // by who had changed it
		world_violate("I11: %c: %s, and it is listed", a->node, a->text);
	else if (!strcmp(verb, "rename") && s && s->is != 'X' && !waits_in_trash(a, s) && is_last_rename(i) &&
		 strncmp(s->name, strrchr(a->text, ' ') + 1, strlen(strrchr(a->text, ' ') + 1)))
		world_violate("%c: %s, and it is called %s", a->node, a->text, s->name);
	else if (!strcmp(verb, "move") && !a->beside && is_last_rename(i) &&
		 !judge_plain(&world_now, "", strrchr(a->text, ' ') + 1))
		world_violate("%c: %s, and it is not there", a->node, a->text);
	else if (!strcmp(verb, "pin") && s && s->is != 'X' && !waits_in_trash(a, s) && !s->replaced_by && !s->pinned)
		world_violate("%c: %s, and it is not pinned", a->node, a->text);
	else if ((!strcmp(verb, "write") || !strcmp(verb, "swap")) && !is_written_over(i) &&
		 !judge_had_file(&world_now, a->bytes))
		world_violate("%c: what was written has never been in the log: %s", a->node, a->text);
	else if (!strcmp(verb, "unlink") && a->removed && !a->beside) {
		char path[32];
		const struct judge_plain *p;

		sscanf(a->text, "%*s %31s", path);
		p = judge_plain(&world_now, "", path);
		if (p && p->bytes == a->removed && !may_come_back(p))
			world_violate("%c: %s, and it is there", a->node, a->text);
	}
}

// A listed step has the name of the file, and hides it (ckptfs-remote(7)). A node without the file puts it into its tree once the step is gone
// (core/remote/tree_plan.h). A node that has shown this content must still have it: the step does not take it away.
static bool waits_for_step(const struct node *n, const struct judge_plain *p)
{
	return !*p->id && !*p->folder_id && judge_listed(&world_now, p->name) && !world_has_seen(n, p->bytes);
}

// An older version of it, which the log has had, stands in its place meanwhile. A content that the log never had must not stand there.
static bool has_older(const struct node *n, const struct judge_plain *p)
{
	char words[JUDGE_NAME + 8];
	unsigned long long bytes;
	const char *at;

	snprintf(words, sizeof(words), "\nf %s ", p->name);
	at = strstr(n->told, words);
	return at && sscanf(at + strlen(words), "%llu", &bytes) == 1 && judge_had_file(&world_now, bytes);
}

static void check_tree(const struct node *n)
{
	size_t count = 0, want = 0;

	for (size_t i = 0; i < world_now.plain_count; i++) {
		char path[2 * JUDGE_NAME], words[3 * JUDGE_NAME];

		if (waits_for_step(n, &world_now.plains[i])) {
			want += has_older(n, &world_now.plains[i]);
			continue;
		}
		want++;
		judge_path(&world_now, &world_now.plains[i], path, sizeof(path));
		if (*world_now.plains[i].id)
			snprintf(words, sizeof(words), "\nd %s\n", path);
		else
			snprintf(words, sizeof(words), "\nf %s %" PRIu64 " ", path, world_now.plains[i].bytes);
		if (!strstr(n->told, words))
			world_violate("%c does not have %s as the log says, %" PRIu64 " bytes", n->letter, path,
				      world_now.plains[i].bytes);
	}
	for (const char *at = n->told; (at = strchr(at, '\n')); at++)
		count += (at[1] == 'f' || at[1] == 'd') && at[2] == ' ';
	if (count != want)
		world_violate("%c has %zu plain files and folders, the log %zu", n->letter, count, want);
}

// Each byte is read on each node.
static void check_files(struct node *n)
{
	const char *told = world_ask(n, "F");
	size_t count = 0, want = 0;

	for (const char *at = told; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
		char id[CKPT_UUID_LEN + 1], name[JUDGE_NAME], path[JUDGE_NAME];
		const struct judge_step *s;
		long bytes;
		bool is = false;

		if (sscanf(at, "F %36s %79s %79s %ld", id, name, path, &bytes) != 4)
			continue;
		s = judge_step(&world_now, id);
		for (size_t i = 0; s && i < s->file_count; i++)
			is |= !strcmp(s->files[i].path, path) && (long)s->files[i].bytes == bytes;
		if (!is)
			world_violate("%c reads %s/%s as %ld", n->letter, name, path, bytes);
		count++;
	}
	for (size_t i = 0; i < world_now.step_count; i++)
		want += world_now.steps[i].is == 'L' ? world_now.steps[i].file_count : 0;
	if (count != want)
		world_violate("%c reads %zu files of steps, the log has %zu", n->letter, count, want);
}

static void check_garbage(void)
{
	bool any = false;

	for (unsigned i = 0; i < MODEL_NODES; i++)
		any |= world_sc->collections[i] > 0;
	for (unsigned round = 0; any && round < 2 && !*world_wrong(); round++) {
		world_do_whole(&world_nodes[1], SLOT_COLLECT, "collect", -1);
		world_exchange_all();
	}
	for (size_t i = 0; any && i < world_bucket.count; i++)
		if ((!strncmp(world_bucket.at[i].key, "packs/", 6) || !strncmp(world_bucket.at[i].key, "m/", 2)) &&
		    !judge_is_needed(&world_now, world_bucket.at[i].key))
			world_violate("garbage never goes: %s", judge_object_label(world_bucket.at[i].key));
}

void world_settle(void)
{
	while (world_late_count && !*world_wrong())
		if (world_seed & 1)
			world_land(0);
		else
			world_late_count--;
	for (unsigned i = 0; i < MODEL_NODES && !*world_wrong(); i++)
		settle_node(&world_nodes[i]);
	world_exchange_all();
	check_garbage();
	for (unsigned i = 0; i < MODEL_NODES && !*world_wrong(); i++) {
		if (world_nodes[i].gone)
			continue;
		world_look(&world_nodes[i]);
		check_tree(&world_nodes[i]);
		check_files(&world_nodes[i]);
	}
	for (size_t i = 0; i < world_act_count; i++)
		if (world_acts[i].done && !(world_acts[i].node == 'A' && world_nodes[0].gone))
			check_act(i);
}
