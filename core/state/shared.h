// A state beside the log of a remote, which several nodes append to (REMOTE.md sections 1 to 4).
//
// The node's own log has two kinds of operations then. Acts of this node show at once; a step that they have made other than it is in the
// remote's log is changed, and waits to be pushed. A PULL has one entry of the remote's log, whole and in order: it shows, too, and what
// it says of a changed step is merged with the change. So the state says at any time what the remote's log has, up to which entry, and
// what is to be pushed: the difference. Nothing else is kept of what was sent: an act that has arrived is no difference any more.
// A step that expired here before the log had it may have been sent, and arrive in the next entry. So it stays a changed one, with
// nothing to push, until that entry is read: if this node has saved it there, its expiry is to be pushed.
//
// A step that two nodes have changed has the changes of both: each of name, files, flags and deletion is that of the node which changed
// it since they were the same; where both did, that of this node, but:
//   name     whose name was taken meanwhile is called NAME.conflict-HOST, -2, -3 ...; nothing goes for want of a name
//   deleted  a step that the other has pinned stays; a step that the other has deleted stays deleted, with the changes of both
//   expired  a step that the other has expired is a step of this node alone, if this node has changed its files: NAME.conflict-HOST,
//            with the files that it has added or changed. Else it is gone
//   files    those of both, path by path, and the metadata of both, name by name. This needs manifests, which are no business of a state. So the files are those of this node
//            first, as the next version, and the step is unmerged: nothing of its files is pushed. Then core/save/reunite.c puts them
//            together, in an act MERGE, which says up to which version of the remote's log it has all changes
// Files of a step that was deleted here after they were changed are not pushed before it is undeleted, here or elsewhere.
// So all nodes that have read the same log, and have nothing to push, show the same, but for such files.
//
// A DROP takes a changed step out of what is to be pushed: it stays as it is here, until another act of this node changes it. A step with
// another name, or one that is deleted, cannot be dropped: others would wait for its name. What a dropped step has replaced here stays in
// the remote's log. Plain files that were written behind a dropped step may name it: they wait until a later step was pushed.
//
// A PULL whose entry is empty attaches the remote, or detaches it where it names no host. Attached, all that there is is changed. Detached,
// all is as it is here, and nothing is known of the remote: the state is that of a store that never had one.
//
// A JUMP passes many entries at once: the state that another node has read up to some entry takes the place of what was read here.
#pragma once

#include "core/log/log.h"
#include "core/state/pull.h"
#include "core/state/state.h"

bool ckpt_state_is_attached(const struct ckpt_state *state);
struct ckpt_log_position ckpt_state_remote(const struct ckpt_state *state);
// The changed steps, in the order in which their changes began; borrowed, as ckpt_state_step's.
struct ckpt_state_step *const *ckpt_state_changed(const struct ckpt_state *state, size_t *ret_count);
// A shared value that waits to be pushed: its key, and the text, "" where there is to be none (values.h); borrowed. NULL: none.
const char *ckpt_state_changed_value(const struct ckpt_state *state, const char **ret_text);
// The listed step of this name in the remote's log; NULL: none.
const struct ckpt_state_step *ckpt_state_shared_listed(const struct ckpt_state *state, const char *folder_id,
						       const char *name);
// Of this node, in names of conflicts; borrowed. NULL: there is no remote.
const char *ckpt_state_host(const struct ckpt_state *state);
// The name of a step whose own was taken by another node: the n-th, from 1. name is not ret_name.
void ckpt_state_other_name(const struct ckpt_state *state, const char *name, unsigned n,
			   char ret_name[CKPT_NAME_MAX + 1]);
// Its files do not have the changes of other nodes yet, or too much of a step that has expired. was: the version that both began with. theirs:
// that of the remote's log, with the changes; 0: it has expired there.
bool ckpt_state_is_unmerged(const struct ckpt_state_step *changed);
uint32_t ckpt_state_unmerged_theirs(const struct ckpt_state_step *changed);
// The listed step is an edit that the remote's log does not have, of a step which has other files there by now: it is pushed once a MERGE has
// put them into it. has: the same, asked of the step whose place it took; both began with version `merged` of that, and the remote's log has
// ckpt_state_unmerged_theirs().
bool ckpt_state_is_edit_behind(const struct ckpt_state *state, const struct ckpt_state_step *edit);
bool ckpt_state_has_edit_behind(const struct ckpt_state *state, const struct ckpt_state_step *step);
// It was deleted here after its files had changed: they are not pushed before it is undeleted.
bool ckpt_state_keeps_files(const struct ckpt_state_step *changed);
// It is what the remote's log has, and was something else before: that may be on its way there.
bool ckpt_state_is_as_shared(const struct ckpt_state_step *changed);
// Its files are other ones than those that the remote's log has.
bool ckpt_state_has_changed_files(const struct ckpt_state_step *changed);
// It was dropped, and nothing has changed it since.
bool ckpt_state_is_dropped(const struct ckpt_state_step *changed);
// Nothing of it is to be pushed: it was dropped, or a dropped step has its place here.
bool ckpt_state_is_left_out(const struct ckpt_state *state, const struct ckpt_state_step *changed);
// A plain file that was written when the newest act had this number may name a dropped step. Such a step, or NULL.
const struct ckpt_state_step *ckpt_state_held_by(const struct ckpt_state *state, uint64_t number);
// The newest version with files or metadata of its own, or with another place for its files: those behind it, deletions too, have the same record.
uint32_t ckpt_state_newest_files(const struct ckpt_state_step *step);
// An operation of CKPT_JUMP_KIND (jump.h): to, a state as read up to that position, takes the place of what was read of the remote's log, and
// changed steps are put on top of it as with a PULL. to has nothing of use afterwards, and is the caller's to free; it may be NULL where
// that position was passed already. 0; CKPT_STATE_VOID; -EBADMSG to is missing; -ENOMEM, and only the steps of to are still whole.
int ckpt_state_jump(struct ckpt_state *state, const struct ckpt_operation *op, const struct ckpt_log_position *at,
		    struct ckpt_state *to);
