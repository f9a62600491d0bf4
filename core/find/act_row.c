#include "core/find/act_row.h"

#include "core/base/util.h"
#include "core/record/event.h"
#include "core/record/metadata.h"
#include "core/state/act.h"
#include "core/state/jump.h"
#include "core/state/pull.h"

#include <stdio.h>

static void copy_name(struct ckpt_act_row *row, const char *folder_id, const char *name)
{
	snprintf(row->folder_id, sizeof(row->folder_id), "%s", folder_id);
	snprintf(row->name, sizeof(row->name), "%s", name);
}

// --- What is known of the step ----------------------------------------------------------------------------------------

static const struct ckpt_act_row *find_prior(const struct ckpt_act_row_from *from, const char *id)
{
	for (size_t i = from->prior_count; i-- > 0;)
		if (!strcmp(from->prior[i].id, id))
			return &from->prior[i];
	return NULL;
}

// The flags that it had before it got this version (0: its newest).
static void take_flags(struct ckpt_act_row *row, const struct ckpt_state_step *step, uint32_t version)
{
	for (size_t i = step->count; i-- > 0;) {
		const struct ckpt_state_version *v = &step->versions[i];

		if (version && v->version >= version)
			continue;
		row->has_flags = true;
		row->pinned = v->pinned;
		row->temporary = v->temporary;
		return;
	}
}

static void take_known(const struct ckpt_act_row_from *from, const char *id, uint32_t version, struct ckpt_act_row *row)
{
	const struct ckpt_act_row *prior = find_prior(from, id);
	const struct ckpt_state_step *step = prior || !from->state ? NULL : ckpt_state_step(from->state, id);

	if (prior) {
		copy_name(row, prior->folder_id, prior->name);
		row->has_size = prior->has_size;
		row->files = prior->files;
		row->bytes = prior->bytes;
		row->has_flags = prior->has_flags;
		row->pinned = prior->pinned;
		row->temporary = prior->temporary;
	}
	if (!step)
		return;
	copy_name(row, step->is.folder_id, step->is.name);
	row->has_size = from->is_before;
	row->files = row->has_size ? step->is.files : 0;
	row->bytes = row->has_size ? step->is.bytes : 0;
	take_flags(row, step, version);
}

// --- Acts ---------------------------------------------------------------------------------------------------------------

static const char *word_of_flags(const struct ckpt_act_row *was, const struct ckpt_act *a)
{
	bool pinned = a->flags & CKPT_FLAG_PINNED, temporary = a->flags & CKPT_FLAG_TEMPORARY;

	if (!was->has_flags)
		return pinned ? "pin" : "flags";
	if (pinned != was->pinned)
		return pinned ? "pin" : "unpin";
	return temporary == was->temporary ? "flags" : temporary ? "temporary" : "promote";
}

static void set_flags(struct ckpt_act_row *row, bool pinned, bool temporary)
{
	row->has_flags = true;
	row->pinned = pinned;
	row->temporary = temporary;
}

// knows_before: the row has the name that the step had right before the act.
static void tell_plain(const struct ckpt_act *a, bool knows_before, struct ckpt_act_row *row)
{
	switch (a->kind) {
	case CKPT_ACT_DELETE:
		row->word = "delete";
		break;
	case CKPT_ACT_UNDELETE:
		row->word = "undelete";
		if (row->has_flags)
			row->temporary = false;
		break;
	case CKPT_ACT_EXPIRE:
		row->word = "expire";
		row->version = 0;
		break;
	case CKPT_ACT_DROP:
		row->word = "drop";
		break;
	case CKPT_ACT_RENAME:
		row->word = "rename";
		if (knows_before) {
			memcpy(row->old_folder_id, row->folder_id, sizeof(row->old_folder_id));
			memcpy(row->old_name, row->name, sizeof(row->old_name));
		}
		copy_name(row, a->folder_id, a->name);
		break;
	default:
		row->word = word_of_flags(row, a);
		set_flags(row, a->flags & CKPT_FLAG_PINNED, a->flags & CKPT_FLAG_TEMPORARY);
	}
}

static int tell_step(const struct ckpt_act_row_from *from, const struct ckpt_act *a, struct ckpt_act_row *row)
{
	take_known(from, a->step, a->version, row);
	memcpy(row->id, a->step, sizeof(row->id));
	row->version = a->version;
	row->at_ns = a->time_ns;
	tell_plain(a, from->is_before || find_prior(from, a->step), row);
	return 0;
}

// The version of a seal has none yet.
static bool has_findings(const char *metadata)
{
	CLEANUP_FREE char *findings = NULL;

	return !ckpt_metadata_findings(metadata, &findings);
}

static const char *word_of_record(enum ckpt_act_kind kind, const char *event, const char *metadata)
{
	switch (kind) {
	case CKPT_ACT_SAVE:
		return "commit";
	case CKPT_ACT_AMEND:
	case CKPT_ACT_MERGE:
		return "edit";
	case CKPT_ACT_RESTORE:
		return "restore";
	case CKPT_ACT_NOTE:
		return "metadata";
	default:
		if (!strcmp(event, CKPT_EVENT_SEAL))
			return has_findings(metadata) ? "findings" : "seal";
		return !strcmp(event, CKPT_EVENT_COOL) ? "cool" : "repack";
	}
}

static int tell_record(const struct ckpt_act *a, struct ckpt_act_row *row)
{
	const struct ckpt_summary *sum;
	struct ckpt_record r;
	int rc = ckpt_record_decode(a->record, a->record_len, &r);

	if (rc)
		return rc;
	sum = &r.summary;
	memcpy(row->id, sum->session, sizeof(row->id));
	memcpy(row->replaces, a->replaces, sizeof(row->replaces));
	memcpy(row->event, sum->event, sizeof(row->event));
	copy_name(row, sum->folder_id, sum->name);
	row->version = sum->version;
	row->at_ns = sum->committed_ns;
	row->has_size = true;
	row->files = sum->files;
	row->bytes = sum->bytes;
	set_flags(row, sum->pinned, sum->temporary);
	row->word = word_of_record(a->kind, sum->event, r.metadata);
	row->is_detail = a->kind == CKPT_ACT_REPACK;
	ckpt_record_done(&r);
	return 0;
}

// All other values are a matter of ckptfs alone.
static int tell_value(const struct ckpt_act *a, struct ckpt_act_row *row)
{
	bool is_setting = ckpt_value_is_setting(a->key);

	row->word = is_setting ? "setting" : "policy";
	row->at_ns = a->time_ns;
	return is_setting || !strcmp(a->key, CKPT_VALUE_POLICY) ? 0 : CKPT_ACT_ROW_NONE;
}

static int tell_tree(const struct ckpt_act *a, struct ckpt_act_row *row)
{
	static const char *const words[] = {"mkdir", "write", "remove", "move"};

	row->word = words[a->kind - CKPT_ACT_MKDIR];
	row->is_detail = true;
	copy_name(row, a->folder_id, a->name);
	return 0;
}

static int tell(const struct ckpt_act_row_from *from, const struct ckpt_operation *op, struct ckpt_act_row *row)
{
	struct ckpt_act a;
	int rc;

	if (op->kind == CKPT_PULL_KIND || op->kind == CKPT_JUMP_KIND) {
		row->word = op->kind == CKPT_JUMP_KIND              ? "pull"
			    : ckpt_pull_has_host(op->body, op->len) ? "attach"
								    : "detach";
		return 0;
	}
	if (op->kind >= CKPT_ACT_KINDS)
		return op->required ? -ENOTSUP : CKPT_ACT_ROW_NONE;
	rc = ckpt_act_decode(op->kind, op->body, op->len, &a);
	if (rc)
		return rc;
	if (ckpt_act_is_on_objects(a.kind))
		return CKPT_ACT_ROW_NONE;
	if (ckpt_act_is_on_tree(a.kind))
		return tell_tree(&a, row);
	if (a.kind == CKPT_ACT_SET)
		return tell_value(&a, row);
	return ckpt_act_has_record(a.kind) ? tell_record(&a, row) : tell_step(from, &a, row);
}

int ckpt_act_row_of(const struct ckpt_act_row_from *from, const struct ckpt_operation *op, struct ckpt_act_row *ret)
{
	struct ckpt_act_row row = {.seq = from->seq, .actor = op->actor};
	int rc = tell(from, op, &row);

	if (rc)
		return rc;
	memcpy(row.node, op->node, sizeof(row.node));
	row.at_ns = row.at_ns ? row.at_ns : from->time_ns;
	*ret = row;
	return 0;
}
