#include "fs/control.h"

#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/policy/policy_store.h"
#include "core/save/delete.h"
#include "core/step/errlog.h"
#include "core/step/store.h"
#include "fs/decider.h"
#include "fs/metrics.h"
#include "fs/status.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

static const struct {
	const char *name;
	mode_t mode;
	enum control_piece in;
} pieces[CONTROL_PIECES + 1] = {
	[CONTROL_DIR] = {CKPT_CONTROL_NAME, S_IFDIR | 0755, CONTROL_NONE},
	[CONTROL_STATUS] = {"status", S_IFREG | 0444, CONTROL_DIR},
	[CONTROL_STATUS_JSON] = {"status.json", S_IFREG | 0444, CONTROL_DIR},
	[CONTROL_ERRORS] = {"errors", S_IFREG | 0444, CONTROL_DIR},
	[CONTROL_CONFIG] = {"config", S_IFREG | 0444, CONTROL_DIR},
	[CONTROL_METRICS] = {"metrics", S_IFREG | 0444, CONTROL_DIR},
	[CONTROL_STAGED] = {"staged", S_IFDIR | 0555, CONTROL_DIR},
	[CONTROL_TRASH] = {"trash", S_IFDIR | 0555, CONTROL_DIR},
	[CONTROL_CONFLICTS] = {"conflicts", S_IFDIR | 0555, CONTROL_DIR},
	[CONTROL_POLICY] = {CONTROL_POLICY_NAME, S_IFREG | 0644, CONTROL_DIR},
	[CONTROL_PREEMPTED] = {CONTROL_PREEMPTED_NAME, S_IFREG | 0644, CONTROL_DIR},
	[CONTROL_SHOULD_SAVE] = {"should_save", S_IFDIR | 0555, CONTROL_DIR},
	[CONTROL_ANSWER] = {"", S_IFREG | 0444, CONTROL_NONE},
};

// --- Nodes ------------------------------------------------------------------------------------------------------------

static int piece_node(struct ckpt_fs *fs, enum control_piece piece, struct node *parent, struct node **ret_node)
{
	return node_get(fs, SPACE_CONTROL, (uint64_t)piece, pieces[piece].mode & S_IFMT, parent, pieces[piece].name,
			NULL, ret_node);
}

int control_preempted(struct ckpt_fs *fs, struct node *dir, struct node **ret_node)
{
	return piece_node(fs, CONTROL_PREEMPTED, dir, ret_node);
}

int control_dir(struct ckpt_fs *fs, struct node **ret_node)
{
	return piece_node(fs, CONTROL_DIR, node_root(fs), ret_node);
}

// Left-over sessions may share a name; then all but the first carry the beginning of their id.
static void left_name(struct ckpt_step **steps, size_t i, char *buf, size_t cap)
{
	const char *name = *steps[i]->name ? steps[i]->name : steps[i]->session;
	bool first = i == 0 || strcmp(steps[i]->name, steps[i - 1]->name) || !*steps[i]->name;

	if (first)
		snprintf(buf, cap, "%s", name);
	else
		snprintf(buf, cap, "%.240s.%.8s", name, steps[i]->session);
}

static int by_name(const void *a, const void *b)
{
	const struct ckpt_step *x = *(struct ckpt_step *const *)a, *y = *(struct ckpt_step *const *)b;
	int order = strcmp(x->name, y->name);

	return order ? order : strcmp(x->session, y->session);
}

// In the order that gives them their names here. What is left over is never renamed.
static int list_left(struct ckpt_fs *fs, struct ckpt_step ***ret_steps, size_t *ret_count)
{
	int rc = ckpt_step_list(fs->store, NULL, 1u << CKPT_STEP_LEFT, ret_steps, ret_count);

	if (!rc && *ret_count)
		qsort(*ret_steps, *ret_count, sizeof(**ret_steps), by_name);
	return rc;
}

static int left_node(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node)
{
	struct ckpt_step **steps;
	char have[CKPT_NAME_MAX + 1];
	struct statx stx;
	size_t count;
	int rc = list_left(fs, &steps, &count);

	if (rc)
		return rc;
	rc = -ENOENT;
	for (size_t i = 0; i < count && rc == -ENOENT; i++) {
		left_name(steps, i, have, sizeof(have));
		if (strcmp(have, name))
			continue;
		ckpt_lock_take(&steps[i]->lock); // who drops it closes the descriptor
		rc = statx(steps[i]->dirfd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) ? -ESTALE : 0;
		ckpt_lock_drop(&steps[i]->lock);
		if (!rc)
			rc = node_get(fs, SPACE_LIVE, ckpt_store_ino(&stx), S_IFDIR, dir, name, steps[i], ret_node);
	}
	ckpt_step_list_free(steps, count);
	return rc;
}

static int deleted_node(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node)
{
	struct ckpt_step **steps;
	char have[CKPT_NAME_MAX + 1];
	size_t count;
	int rc = ckpt_deleted_list(fs->store, &steps, &count);

	if (rc)
		return rc;
	rc = -ENOENT;
	for (size_t i = 0; i < count && rc == -ENOENT; i++) {
		ckpt_deleted_label(steps, i, false, have, sizeof(have));
		if (!strcmp(have, name))
			rc = node_get(fs, node_space(steps[i]), steps[i]->born.dir_ino, S_IFDIR, dir, name, steps[i],
				      ret_node);
	}
	ckpt_step_list_free(steps, count);
	return rc;
}

// Below should_save there are answers, and the folders that runs may be in, which have their answers. What is in a folder has a
// number made of its path, with one of these bits.
#define IN_RUN (UINT64_C(1) << 62)
#define RUN (UINT64_C(1) << 63)

static bool is_run(const struct node *n)
{
	return n->control == CONTROL_ANSWER && S_ISDIR(n->type);
}

int control_path(struct ckpt_fs *fs, struct node *n, const char *name, enum control_piece top, char path[PATH_MAX])
{
	size_t at = PATH_MAX - 1;
	int rc = 0;

	path[at] = '\0';
	names_read_lock(fs);
	while (!rc && (name || n->control != (int)top)) {
		const char *text = name ? name : n->names ? n->names->text : NULL;
		size_t len = text ? strlen(text) : 0;

		rc = !text ? -ESTALE : at < len + 1 ? -ENAMETOOLONG : 0;
		if (rc)
			break;
		if (path[at])
			path[--at] = '/';
		at -= len;
		memcpy(path + at, text, len);
		n = name ? n : n->names->parent;
		name = NULL;
	}
	names_unlock(fs);
	memmove(path, path + at, PATH_MAX - at);
	return rc;
}

// A number as we would write it: each has one name.
static bool is_number(const char *name)
{
	size_t digits = strspn(name, "0123456789");

	return digits && digits <= 18 && (*name != '0' || digits == 1) && !name[digits];
}

static int answer_node(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node)
{
	char path[PATH_MAX];
	uint64_t number;
	int fd, rc;

	if (is_number(name) && !is_run(dir))
		return node_get(fs, SPACE_CONTROL, CONTROL_ANSWER + strtoull(name, NULL, 10), S_IFREG, dir, name, NULL,
				ret_node);
	rc = control_path(fs, dir, name, CONTROL_SHOULD_SAVE, path);
	if (rc)
		return rc;
	number = ckpt_checksum(path, strlen(path), 0) >> 2;
	if (is_number(name))
		return node_get(fs, SPACE_CONTROL, IN_RUN | number, S_IFREG, dir, name, NULL, ret_node);
	fd = ckpt_sys.open(fs->store->tree_fd, path, O_PATH | O_DIRECTORY, 0);
	if (fd < 0)
		return -ENOENT;
	ckpt_sys.close(fd);
	return node_get(fs, SPACE_CONTROL, RUN | number, S_IFDIR, dir, name, NULL, ret_node);
}

static bool is_there(struct ckpt_fs *fs, int piece)
{
	return piece != CONTROL_PREEMPTED || decider_preempted_at(fs->decider) >= 0;
}

int control_lookup(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node)
{
	if (dir->control == CONTROL_STAGED)
		return left_node(fs, dir, name, ret_node);
	if (dir->control == CONTROL_TRASH)
		return deleted_node(fs, dir, name, ret_node);
	if (dir->control == CONTROL_CONFLICTS || dir->control == CONTROL_COPY)
		return control_conflicts_lookup(fs, dir, name, ret_node);
	if (control_is_array(dir))
		return control_arrays_lookup(fs, dir, name, ret_node);
	if (dir->control == CONTROL_SHOULD_SAVE || is_run(dir))
		return answer_node(fs, dir, name, ret_node);
	for (int i = 1; i < CONTROL_PIECES; i++)
		if ((int)pieces[i].in == dir->control && !strcmp(pieces[i].name, name) && is_there(fs, i))
			return piece_node(fs, (enum control_piece)i, dir, ret_node);
	return -ENOENT;
}

int control_attr(struct node *n, struct stat *ret_attr, double *ret_timeout)
{
	bool by_path = n->control >= CONTROL_PIECES && S_ISDIR(n->type); // below should_save and conflicts
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	*ret_attr = (struct stat){
		.st_ino = n->control == CONTROL_COPY ? n->number : UINT64_MAX - n->number,
		.st_mode = pieces[by_path ? CONTROL_SHOULD_SAVE : n->control].mode,
		.st_nlink = S_ISDIR(n->type) ? 2 : 1,
		.st_uid = geteuid(),
		.st_gid = getegid(),
		.st_blksize = 4096,
		.st_atim = now,
		.st_mtim = now,
		.st_ctim = now,
	};
	*ret_timeout = TIMEOUT_NONE;
	return 0;
}

// --- What they say ----------------------------------------------------------------------------------------------------

static int policy_text(struct ckpt_fs *fs, char **ret_text)
{
	CLEANUP_FREE char *why = NULL, *compact = NULL, *lines = NULL;
	struct ckpt_policy p;
	uint64_t seq;
	json_t *json = NULL;
	int rc = ckpt_policy_load(fs->store, &p, &seq, &why);

	if (rc && rc != -ENOMEM)
		ckpt_errlog_add(fs->store->errlog, CONTROL_POLICY_NAME, rc, "write another one",
				"it cannot be used: %s", why ? why : strerror(-rc));
	if (rc)
		return rc == -ENOMEM ? rc : -EIO;
	compact = ckpt_policy_text(&p);
	ckpt_policy_done(&p);
	if (!compact || ckpt_json_load(compact, strlen(compact), 0, NULL, &json))
		return -ENOMEM;
	lines = json_dumps(json, JSON_INDENT(2) | JSON_SORT_KEYS);
	json_decref(json);
	return lines && asprintf(ret_text, "%s\n", lines) >= 0 ? 0 : -ENOMEM;
}

static char *preempted_text(struct ckpt_fs *fs)
{
	int64_t at = decider_preempted_at(fs->decider);
	char *text;

	return at <= 0 ? strdup("") : asprintf(&text, "%" PRId64 "\n", at) < 0 ? NULL : text;
}

// "1 permanent fixed_interval", "0".
static int answer_text(struct ckpt_fs *fs, struct node *n, char **ret_text)
{
	CLEANUP_FREE char *why = NULL;
	struct ckpt_decide q = {.step = (int64_t)(n->number - CONTROL_ANSWER)};
	struct ckpt_decided_step answer;
	char path[PATH_MAX], *slash;
	int rc = n->number & IN_RUN ? control_path(fs, n, NULL, CONTROL_SHOULD_SAVE, path) : 0;

	if (!rc && n->number & IN_RUN) {
		slash = strrchr(path, '/');
		*slash = '\0';
		q.run = path;
		q.step = strtoll(slash + 1, NULL, 10);
	}
	if (!rc)
		rc = decider_ask(fs, &q, &answer, &why);
	if (rc)
		return rc == -ENOMEM || rc == -EBUSY || rc == -EMLINK ? rc : -EIO;
	if (!answer.save)
		*ret_text = strdup("0\n");
	else if (asprintf(ret_text, "1 %s %s\n", answer.permanent ? "permanent" : "temporary", answer.by) < 0)
		*ret_text = NULL;
	return 0;
}

int control_text(struct ckpt_fs *fs, struct node *n, char **ret_text, size_t *ret_len)
{
	char *text = NULL;
	int rc = 0;

	switch ((enum control_piece)n->control) {
	case CONTROL_STATUS:
		text = status_text(fs);
		break;
	case CONTROL_STATUS_JSON:
		text = status_json(fs);
		break;
	case CONTROL_ERRORS:
		if (ckpt_errlog_text(fs->store->errlog, &text))
			text = NULL;
		break;
	case CONTROL_CONFIG:
		text = ckpt_settings_lines(&fs->store->settings);
		break;
	case CONTROL_METRICS:
		text = metrics_text(fs);
		break;
	case CONTROL_POLICY:
		rc = policy_text(fs, &text);
		break;
	case CONTROL_PREEMPTED:
		text = preempted_text(fs);
		break;
	case CONTROL_ANSWER:
		rc = answer_text(fs, n, &text);
		break;
	default:
		return -EISDIR;
	}
	if (rc || !text)
		return rc ? rc : -ENOMEM;
	*ret_text = text;
	*ret_len = strlen(text);
	return 0;
}

int control_each(struct ckpt_fs *fs, struct node *dir, control_name_fn *fn, void *arg)
{
	bool staged = dir->control == CONTROL_STAGED;
	struct ckpt_step **steps;
	char name[CKPT_NAME_MAX + 1];
	size_t count;
	int rc = 0;

	if (dir->control == CONTROL_CONFLICTS || dir->control == CONTROL_COPY)
		return control_conflicts_each(fs, dir, fn, arg);
	if (control_is_array(dir))
		return control_arrays_each(fs, dir, fn, arg);
	if (!staged && dir->control != CONTROL_TRASH) {
		for (int i = 1; i < CONTROL_PIECES && !rc; i++)
			if ((int)pieces[i].in == dir->control && is_there(fs, i))
				rc = fn(arg, pieces[i].name, pieces[i].mode & S_IFMT, UINT64_MAX - (uint64_t)i);
		return rc;
	}
	rc = staged ? list_left(fs, &steps, &count) : ckpt_deleted_list(fs->store, &steps, &count);
	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++) {
		if (staged)
			left_name(steps, i, name, sizeof(name));
		else
			ckpt_deleted_label(steps, i, false, name, sizeof(name));
		rc = fn(arg, name, S_IFDIR, steps[i]->incarnation);
	}
	ckpt_step_list_free(steps, count);
	return rc;
}

// --- Attributes of open files --------------------------------------------------------------------------------------------

bool control_opened_attr(struct node *n, struct stat *ret_attr)
{
	struct node_use *use = node_used(n);

	if (!use)
		return false;
	LOCK_SCOPE(&use->lock);
	if (!n->opened)
		return false;
	*ret_attr = *n->opened;
	ret_attr->st_nlink = 0;
	return true;
}

int control_remember_opened(struct node *n, const struct stat *attr)
{
	LOCK_SCOPE(&n->use->lock);

	if (!n->opened)
		n->opened = malloc(sizeof(*n->opened));
	if (!n->opened)
		return -ENOMEM;
	*n->opened = *attr;
	return 0;
}
