#include "fs/control.h"

#include "core/delete.h"
#include "core/errlog.h"
#include "core/stage.h"
#include "core/util.h"
#include "fs/attr.h"
#include "fs/metrics.h"
#include "fs/status.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static const struct {
	const char *name;
	mode_t type;
	enum control_piece in;
} pieces[CONTROL_PIECES] = {
	[CONTROL_DIR] = {CKPT_CONTROL_NAME, S_IFDIR, CONTROL_NONE},
	[CONTROL_STATUS] = {"status", S_IFREG, CONTROL_DIR},
	[CONTROL_STATUS_JSON] = {"status.json", S_IFREG, CONTROL_DIR},
	[CONTROL_ERRORS] = {"errors", S_IFREG, CONTROL_DIR},
	[CONTROL_CONFIG] = {"config", S_IFREG, CONTROL_DIR},
	[CONTROL_METRICS] = {"metrics", S_IFREG, CONTROL_DIR},
	[CONTROL_STAGED] = {"staged", S_IFDIR, CONTROL_DIR},
	[CONTROL_TRASH] = {"trash", S_IFDIR, CONTROL_DIR},
};

// --- Nodes ------------------------------------------------------------------------------------------------------------

static int piece_node(struct ckpt_fs *fs, enum control_piece piece, struct node *parent, struct node **ret_node)
{
	return node_get(fs, SPACE_CONTROL, (uint64_t)piece, pieces[piece].type, parent, pieces[piece].name, NULL,
			ret_node);
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
			rc = node_get(fs, node_space(steps[i]), steps[i]->summary.dir_ino, S_IFDIR, dir, name, steps[i],
				      ret_node);
	}
	ckpt_step_list_free(steps, count);
	return rc;
}

int control_lookup(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node)
{
	if (dir->control == CONTROL_STAGED)
		return left_node(fs, dir, name, ret_node);
	if (dir->control == CONTROL_TRASH)
		return deleted_node(fs, dir, name, ret_node);
	for (int i = 1; i < CONTROL_PIECES; i++)
		if ((int)pieces[i].in == dir->control && !strcmp(pieces[i].name, name))
			return piece_node(fs, (enum control_piece)i, dir, ret_node);
	return -ENOENT;
}

int control_attr(struct node *n, struct stat *ret_attr, double *ret_timeout)
{
	bool dir = S_ISDIR(n->type);
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	*ret_attr = (struct stat){
		.st_ino = UINT64_MAX - n->number,
		.st_mode = n->type | (dir ? 0555 : 0444),
		.st_nlink = dir ? 2 : 1,
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

int control_text(struct ckpt_fs *fs, struct node *n, char **ret_text, size_t *ret_len)
{
	char *text = NULL;

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
	default:
		return -EISDIR;
	}
	if (!text)
		return -ENOMEM;
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

	if (!staged && dir->control != CONTROL_TRASH) {
		for (int i = 1; i < CONTROL_PIECES && !rc; i++)
			if ((int)pieces[i].in == dir->control)
				rc = fn(arg, pieces[i].name, pieces[i].type, UINT64_MAX - (uint64_t)i);
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
