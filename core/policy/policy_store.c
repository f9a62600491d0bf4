#include "core/policy/policy_store.h"

#include "core/base/util.h"
#include "core/state/journal.h"
#include "core/step/follow.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define KEY CKPT_VALUE_POLICY // of what the log says

int ckpt_policy_load(struct ckpt_store *s, struct ckpt_policy *ret_policy, uint64_t *ret_seq, char **ret_why)
{
	CLEANUP_FREE char *text = NULL;
	int rc = ckpt_follow_value(s, KEY, &text, ret_seq);

	*ret_why = NULL;
	if (rc)
		*ret_seq = 0;
	if (rc == -ENOENT)
		return ckpt_policy_default(ret_policy);
	if (!rc)
		rc = ckpt_policy_parse(text, strlen(text), ret_policy, ret_why);
	return rc == -EINVAL || rc == -EFBIG ? -EBADMSG : rc;
}

uint64_t ckpt_policy_seq(struct ckpt_store *s)
{
	uint64_t seq;

	return ckpt_follow_value(s, KEY, NULL, &seq) ? 0 : seq;
}

int ckpt_policy_set(struct ckpt_store *s, const struct ckpt_policy *p)
{
	CLEANUP_FREE char *text = ckpt_policy_text(p);

	return text ? ckpt_journal_set(s->journal, KEY, CKPT_ACT_ANY, text) : -ENOMEM;
}

// --- Programs ---------------------------------------------------------------------------------------------------------

static bool is_written_by_us_alone(int dirfd, const char *path)
{
	struct stat st;

	if (fstatat(dirfd, path, &st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT; // it was trimmed
	return (st.st_uid == 0 || st.st_uid == geteuid()) && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

struct search {
	int dirfd;
	char found[CKPT_OBJECT_KEY_MAX + 1]; // what others may write
};

static int check_place(void *arg, const char *path, const struct ckpt_object *object __attribute__((unused)))
{
	struct search *search = arg;

	if (is_written_by_us_alone(search->dirfd, path))
		return 0;
	snprintf(search->found, sizeof(search->found), "%s", path);
	return -EPERM;
}

static int look_at_origin(void *arg __attribute__((unused)), const struct ckpt_state *state)
{
	const struct ckpt_state_value *v = ckpt_state_value(state, KEY);

	return v && v->pulled;
}

// Of a store with a remote each node that may write there may set the policy of all: its programs are for its own machine.
static int check_origin(struct ckpt_store *s, char **ret_why)
{
	if (!ckpt_journal_look(s->journal, look_at_origin, NULL))
		return 0;
	*ret_why = strdup(
		"its policy runs a program (exec), and another node has set it: it runs where the policy was set; "
		"`ckptfs policy set` on this node lets it run here, too");
	return -EPERM;
}

int ckpt_policy_check_programs(struct ckpt_store *s, const struct ckpt_policy *p, char **ret_why)
{
	static const char *const places[] = {"", "log", "snap"}; // who may write a directory may put another file there
	struct search search = {.dirfd = s->dirfd};
	int rc = 0;

	if (!ckpt_policy_has(&p->save, CKPT_POLICY_EXEC))
		return 0;
	rc = check_origin(s, ret_why);
	if (rc)
		return rc;
	for (size_t i = 0; i < ARRAY_LEN(places) && !rc; i++)
		rc = check_place(&search, places[i], NULL);
	if (!rc)
		rc = ckpt_objects_list(s->objects, "log/", NULL, check_place, &search);
	if (!rc)
		rc = ckpt_objects_list(s->objects, "snap/", NULL, check_place, &search);
	if (rc == -EPERM &&
	    asprintf(ret_why, "its policy runs a program (exec), and others could have set it: they may write %s%s%s",
		     s->path, *search.found ? "/" : "", search.found) < 0)
		*ret_why = NULL;
	return rc;
}
