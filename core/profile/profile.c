// What a file holds is from outside: sizes are checked before they are used, and a look reads so much at most.
#include "core/profile/profile.h"

#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/profile/format.h"
#include "core/profile/ranks.h"
#include "core/record/name.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#define JSON_BYTES_MAX (1 << 20) // more than that is whole when it ends as it begins
#define TRACKER_BYTES_MAX 1024   // of a file that holds a name
#define SNAPSHOT_BYTES_MIN 2

struct look {
	const struct ckpt_deed *deed;
	json_t *json; // of the file, or NULL
	bool has_json;
	char text[TRACKER_BYTES_MAX + 1]; // the first of it, without the white space around
};

// 0, -ENOENT or -EINVAL as ckpt_profile_completes(); fills in what it knows.
typedef int check_fn(struct look *l, struct ckpt_completion *c);

struct profile {
	const char *name;
	enum ckpt_event act;
	const char *file;          // a pattern (name.h); of a rename, the new name
	const char *from;          // RENAME: the old name
	const char *const dirs[3]; // forms of the step's name; none: any
	bool beside;               // the file is in the folder that the step is in
	check_fn *check;
	bool settles; // its process goes on writing a moment: the step is complete when nothing has changed for CKPT_SETTLE_NS
	const char *const late[2]; // files that other ranks may still be writing then: the step does not wait for them
	const char *const inside[6]; // beside: what a directory must hold to be one of these; none: anything
	int (*lacks)(int dirfd, bool again,
		     char *ret_name); // what others write, as ckpt_profile_lacks(); NULL: nothing
	const char *awaits;           // for people
	const char *awaits_like;      // files that the step beside it has are awaited
};

// --- What the files hold ----------------------------------------------------------------------------------------------

static int read_text(int fd, uint64_t offset, char *buf, size_t len)
{
	ssize_t n = ckpt_sys.pread(fd, buf, len, (off_t)offset);

	return n < 0 ? (int)n : (size_t)n < len ? -EINVAL : 0;
}

// Too large to be looked at whole.
static int check_ends(int fd, uint64_t bytes)
{
	char head[64], tail[64];
	size_t i = 0, end = sizeof(tail);
	int rc = read_text(fd, 0, head, sizeof(head));

	if (!rc)
		rc = read_text(fd, bytes - sizeof(tail), tail, sizeof(tail));
	if (rc)
		return rc;
	while (i < sizeof(head) && isspace((unsigned char)head[i]))
		i++;
	while (end && isspace((unsigned char)tail[end - 1]))
		end--;
	return i < sizeof(head) && head[i] == '{' && end && tail[end - 1] == '}' ? 0 : -EINVAL;
}

// The file's JSON object; a very large one is only known to be whole, and l->json NULL.
static int load_json(struct look *l)
{
	CLEANUP_FREE char *text = NULL;
	struct stat st;
	int rc;

	if (l->has_json)
		return l->json ? 0 : -EINVAL;
	if (fstat(l->deed->fd, &st))
		return -errno;
	if (st.st_size > JSON_BYTES_MAX)
		return check_ends(l->deed->fd, (uint64_t)st.st_size);
	text = malloc((size_t)st.st_size + 1);
	rc = text ? read_text(l->deed->fd, 0, text, (size_t)st.st_size) : -ENOMEM;
	if (rc)
		return rc;
	ckpt_json_tame(text, (size_t)st.st_size);
	rc = ckpt_json_load(text, (size_t)st.st_size, 0, NULL, &l->json); // takes some twenty times as much
	if (rc == -ENOMEM)
		return rc;
	l->has_json = true;
	if (!json_is_object(l->json)) {
		json_decref(l->json);
		l->json = NULL;
	}
	return l->json ? 0 : -EINVAL;
}

static int load_text(struct look *l)
{
	ssize_t n = ckpt_sys.pread(l->deed->fd, l->text, sizeof(l->text), 0);
	size_t start = 0, len;

	if (n < 0)
		return (int)n;
	if (n == (ssize_t)sizeof(l->text))
		return -ENOENT; // a name is not so long
	len = (size_t)n;
	if (memchr(l->text, '\0', len))
		return -ENOENT;
	while (len && isspace((unsigned char)l->text[len - 1]))
		len--;
	while (start < len && isspace((unsigned char)l->text[start]))
		start++;
	memmove(l->text, l->text + start, len - start);
	l->text[len - start] = '\0';
	return len > start ? 0 : -EINVAL;
}

// 0, -ENOENT, or why it cannot be said.
static int holds(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static bool is_like(const char *name, const char *const *patterns, size_t count)
{
	for (size_t i = 0; i < count && patterns[i]; i++)
		if (ckpt_name_matches(patterns[i], name))
			return true;
	return false;
}

static int holds_like(int dirfd, const char *const *patterns, size_t count)
{
	int fd = ckpt_sys.open(dirfd, ".", O_RDONLY | O_DIRECTORY, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int rc = fd < 0 ? fd : dir ? 0 : -errno;

	if (!dir) {
		if (fd >= 0)
			ckpt_sys.close(fd);
		return rc;
	}
	do
		rc = ckpt_sys.readdir(dir, &e);
	while (!rc && e && !is_like(e->d_name, patterns, count));
	closedir(dir);
	return rc ? rc : e ? 0 : -ENOENT;
}

static int check_orbax(struct look *l, struct ckpt_completion *c)
{
	(void)c;
	return holds(l->deed->dirfd, "_CHECKPOINT_METADATA");
}

static int check_megatron(struct look *l, struct ckpt_completion *c)
{
	int rc = load_json(l);

	(void)c;
	return rc ? rc : json_is_string(json_object_get(l->json, "sharded_backend")) ? 0 : -ENOENT;
}

// 0: the save is numbered, and not an answer to a signal that is still to be numbered: eformer writes the file twice, first with step -1.
static int check_numbered(struct look *l, struct ckpt_completion *c)
{
	int rc = load_json(l);
	const json_t *step = json_object_get(l->json, "step");
	const json_t *is_temporary = json_object_get(l->json, "is_temporary");

	if (rc)
		return rc;
	if (json_is_boolean(is_temporary))
		c->metadata = json_is_true(is_temporary) ? "{\"temporary\":true}" : "{\"temporary\":false}";
	return json_is_integer(step) && json_integer_value(step) >= 0 ? 0 : -ENOENT;
}

static int check_eformer(struct look *l, struct ckpt_completion *c)
{
	int rc = check_numbered(l, c);

	if (rc)
		return rc;
	rc = holds(l->deed->dirfd, "tensorstore_index.json");
	return rc == -ENOENT ? holds(l->deed->dirfd, "checkpoint_metadata.json") : rc;
}

// eformer came from it, and added the index.
static int check_levanter(struct look *l, struct ckpt_completion *c)
{
	int rc = check_numbered(l, c);

	if (rc)
		return rc;
	return json_object_get(l->json, "timestamp") && json_object_get(l->json, "is_temporary") ? 0 : -ENOENT;
}

// Trainer.save_state() writes it beside logs, too.
static int check_trainer(struct look *l, struct ckpt_completion *c)
{
	static const struct ckpt_place anywhere = {.root = true};
	const char *claim = "hf-trainer";
	int rc = 0;

	(void)c;
	if (!ckpt_name_is_step(l->deed->dir, &anywhere))
		rc = ckpt_profile_claims_dir(UINT64_MAX, l->deed->dirfd, &claim);
	if (!rc && (!claim || strcmp(claim, "hf-trainer")))
		rc = -ENOENT;
	return rc ? rc : load_json(l);
}

// 0: it has something, and is not cut off by its format; -EINVAL; or why it cannot be said.
static int check_whole(int fd, const char *name)
{
	int rc = ckpt_format_check(fd, name);

	return rc == -ENODATA ? -EINVAL : rc;
}

// Each file of the index is there and whole.
static int check_indexed(struct look *l, const json_t *map)
{
	const char *tensor;
	json_t *file;

	json_object_foreach((json_t *)map, tensor, file)
	{
		const char *name = json_string_value(file);
		CLEANUP_FD int fd = name && !ckpt_name_check(name, strlen(name))
					    ? ckpt_sys.open(l->deed->dirfd, name, O_RDONLY | O_NONBLOCK, 0)
					    : -EINVAL;
		int rc = fd < 0 ? fd : check_whole(fd, name);

		if (rc)
			return rc == -ENOENT || rc == -EAGAIN ? -EINVAL : rc;
	}
	return 0;
}

// torch's HuggingFaceStorageWriter writes it last. transformers writes it, too, has written config.json then, and writes more.
static int check_index(struct look *l, struct ckpt_completion *c)
{
	int rc = holds(l->deed->dirfd, "config.json");
	const json_t *map;

	(void)c;
	if (rc != -ENOENT)
		return rc ? rc : -ENOENT;
	rc = load_json(l);
	map = json_object_get(l->json, "weight_map");
	if (rc || !json_object_size(map))
		return rc ? rc : -EINVAL;
	return check_indexed(l, map);
}

// AXLearn's list of what it saved: [["step", 100], ...
static int check_axlearn(struct look *l, struct ckpt_completion *c)
{
	static const char begin[] = "[[\"step\",";
	char head[64];
	size_t len = 0;
	ssize_t n = ckpt_sys.pread(l->deed->fd, head, sizeof(head), 0);

	(void)c;
	for (ssize_t i = 0; i < n; i++)
		if (!isspace((unsigned char)head[i]))
			head[len++] = head[i];
	return n < 0 ? (int)n : len >= strlen(begin) && !memcmp(head, begin, strlen(begin)) ? 0 : -ENOENT;
}

// Lightning and Fabric write it behind DCP's own last file, and do not load without it.
static int check_lightning(struct look *l, struct ckpt_completion *c)
{
	int rc = holds(l->deed->dirfd, ".metadata");

	(void)c;
	return rc ? rc : check_whole(l->deed->fd, l->deed->name);
}

static int check_accelerate(struct look *l, struct ckpt_completion *c)
{
	uint8_t head[2];
	int rc = read_text(l->deed->fd, 0, (char *)head, sizeof(head));

	(void)c;
	if (!rc && memcmp(head, "PK", 2) && head[0] != 0x80)
		rc = -EINVAL; // neither of torch.save's two forms
	if (!rc)
		rc = check_whole(l->deed->fd, l->deed->name);
	return rc;
}

static int check_snapshot(struct look *l, struct ckpt_completion *c)
{
	struct stat st;

	(void)c;
	if (fstat(l->deed->fd, &st))
		return -errno;
	return st.st_size >= SNAPSHOT_BYTES_MIN ? 0 : -EINVAL;
}

// Megatron and Lightning write through it, and have more to write then.
static int check_dcp(struct look *l, struct ckpt_completion *c)
{
	struct stat st;
	int rc;

	(void)c;
	if (ckpt_name_matches("iter_#", l->deed->dir) || !strcmp(l->deed->dir, "release") ||
	    ckpt_name_matches("*.ckpt", l->deed->dir))
		return -ENOENT;
	rc = holds(l->deed->dirfd, "common.pt");
	if (rc == -ENOENT)
		rc = holds(l->deed->dirfd, "metadata.json");
	if (rc != -ENOENT)
		return rc ? rc : -ENOENT;
	if (fstat(l->deed->fd, &st))
		return -errno;
	return st.st_size ? 0 : -EINVAL;
}

static int check_tag(struct look *l, struct ckpt_completion *c)
{
	int rc = load_text(l);

	if (rc)
		return rc;
	if (ckpt_name_check(l->text, strlen(l->text)))
		return -ENOENT;
	memcpy(c->beside, l->text, strlen(l->text) + 1); // a name is no longer than that
	return 0;
}

static bool read_iteration(const char *text, int64_t *ret_iteration)
{
	*ret_iteration = ckpt_name_number(text);
	return *ret_iteration >= 0 && strspn(text, "0123456789") == strlen(text);
}

static int check_iteration(struct look *l, struct ckpt_completion *c)
{
	int64_t iteration;
	int rc = load_text(l);

	if (rc)
		return rc;
	if (!read_iteration(l->text, &iteration))
		return -ENOENT;
	snprintf(c->beside, sizeof(c->beside), "global_step_%" PRId64, iteration);
	return 0;
}

static int check_megatron_iteration(struct look *l, struct ckpt_completion *c)
{
	int64_t iteration;
	int rc = load_text(l);

	if (rc)
		return rc;
	if (!strcmp(l->text, "release"))
		snprintf(c->beside, sizeof(c->beside), "release");
	else if (read_iteration(l->text, &iteration))
		snprintf(c->beside, sizeof(c->beside), "iter_%07" PRId64, iteration);
	else
		return -ENOENT;
	return 0;
}

// nanotron calls its directories by the number alone.
static int check_number(struct look *l, struct ckpt_completion *c)
{
	int64_t iteration;
	int rc = load_text(l);

	if (rc)
		return rc;
	if (!read_iteration(l->text, &iteration))
		return -ENOENT;
	snprintf(c->beside, sizeof(c->beside), "%" PRId64, iteration);
	return 0;
}

static int check_unfinished(struct look *l, struct ckpt_completion *c)
{
	size_t len = strlen(l->deed->name) - strlen("-unfinished");

	snprintf(c->beside, sizeof(c->beside), "%.*s", (int)len, l->deed->name);
	return 0;
}

// --- The table --------------------------------------------------------------------------------------------------------

#define ITERATION_FILE "latest_checkpointed_iteration.txt"

// Where several rows would do, the first one counts.
static const struct profile profiles[] = {
	{.name = "orbax-commitfile",
	 .act = CKPT_EVENT_CLOSE,
	 .file = "commit_success.txt",
	 .dirs = {"#", "*_#"},
	 .check = check_orbax},
	{.name = "megatron",
	 .act = CKPT_EVENT_CLOSE,
	 .file = "metadata.json",
	 .check = check_megatron,
	 .awaits = "metadata.json, or latest_checkpointed_iteration.txt beside it (megatron)"},
	{.name = "eformer",
	 .act = CKPT_EVENT_CLOSE,
	 .file = "metadata.json",
	 .check = check_eformer,
	 .awaits = "metadata.json with its step (eformer)"},
	{.name = "levanter", .act = CKPT_EVENT_CLOSE, .file = "metadata.json", .check = check_levanter},
	{.name = "hf-storage", .act = CKPT_EVENT_CLOSE, .file = "*.safetensors.index.json", .check = check_index},
	{.name = "hf-storage", .act = CKPT_EVENT_RENAME, .file = "*.safetensors.index.json", .check = check_index},
	{.name = "axlearn", .act = CKPT_EVENT_CLOSE, .file = "index", .check = check_axlearn},
	{.name = "lightning", .act = CKPT_EVENT_CLOSE, .file = "meta.pt", .dirs = {"*.ckpt"}, .check = check_lightning},
	{.name = "hf-trainer",
	 .act = CKPT_EVENT_CLOSE,
	 .file = "trainer_state.json",
	 .check = check_trainer,
	 .late = {"rng_state_*.pth"},
	 .awaits = "trainer_state.json (hf-trainer)"},
	{.name = "accelerate",
	 .act = CKPT_EVENT_CLOSE,
	 .file = "random_states_0.pkl",
	 .check = check_accelerate,
	 .settles = true,
	 .awaits_like = "custom_checkpoint_*.pkl",
	 .late = {"random_states_*.pkl"},
	 .awaits = "random_states_0.pkl (accelerate)"},
	{.name = "torchsnapshot", .act = CKPT_EVENT_CLOSE, .file = ".snapshot_metadata", .check = check_snapshot},
	{.name = "dcp", .act = CKPT_EVENT_RENAME, .file = ".metadata", .from = ".metadata.tmp", .check = check_dcp},
	{.name = "deepspeed",
	 .act = CKPT_EVENT_CLOSE,
	 .file = "latest",
	 .beside = true,
	 .check = check_tag,
	 .inside = {"*_states.pt"},
	 .lacks = ckpt_ranks_lack,
	 .awaits = "latest, beside it, with its name (deepspeed)"},
	{.name = "bytecheckpoint",
	 .act = CKPT_EVENT_CLOSE,
	 .file = ITERATION_FILE,
	 .beside = true,
	 .check = check_iteration,
	 .inside = {"*"},
	 .awaits = "latest_checkpointed_iteration.txt, beside it (bytecheckpoint)"},
	{.name = "megatron",
	 .act = CKPT_EVENT_CLOSE,
	 .file = ITERATION_FILE,
	 .beside = true,
	 .check = check_megatron_iteration,
	 .inside = {"mp_rank_*", "*.distcp", "metadata.json"}},
	{.name = "nanotron",
	 .act = CKPT_EVENT_CLOSE,
	 .file = "latest.txt",
	 .beside = true,
	 .check = check_number,
	 .inside = {"checkpoint_metadata.json", "model_config.json", "model", "optimizer"},
	 .awaits = "latest.txt, beside it, with its number (nanotron)"},
	{.name = "nemo",
	 .act = CKPT_EVENT_UNLINK,
	 .file = "*-unfinished",
	 .beside = true,
	 .check = check_unfinished,
	 .inside = {"weights", "model_weights", "*.distcp", "common.pt", "mp_rank_*", "tp_rank_*"}},
	// These end with the rename of a directory or file from its temp name, wherever it is.
	{.name = "orbax"},
	{.name = "flax"},
	{.name = "single-file"},
};
_Static_assert(ARRAY_LEN(profiles) < 64, "a bit for each");

// Which of them a directory's name speaks for, for people.
static const struct {
	const char *form, *profile;
} usual_names[] = {
	{"checkpoint-#", "hf-trainer"}, {"checkpoint_#", "accelerate"},      {"iter_#", "megatron"},
	{"global_step#", "deepspeed"},  {"global_step_#", "bytecheckpoint"}, {"run-#", "eformer"},
};

static const struct {
	const char *form, *profile;
} temp_names[] = {
	{"*.orbax-checkpoint-tmp", "orbax"}, {"*.orbax-checkpoint-tmp-*", "orbax"}, {"*.partial_save", "orbax"},
	{"tmp-checkpoint-*", "hf-trainer"},  {"checkpoint_tmp*", "flax"},           {"checkpoint_tmp", "flax"},
};

// Folders in checkpoints, which hold what would be one by itself.
static const char *const parts[] = {
	"weights",     "model_weights", "model",  "pytorch_model*", "optimizer*",
	"extra_state", "actor",         "critic", "state",          "context",
};

static const char *const copiers[] = {
	"cp", "mv",  "rsync",  "tar",    "bsdtar", "cpio",  "pax", "scp",     "sftp-server", "unzip",
	"7z", "aws", "gsutil", "gcloud", "rclone", "s5cmd", "git", "install", "dd",
};

static bool is_on(uint64_t mask, const struct profile *p)
{
	return mask >> (p - profiles) & 1;
}

int ckpt_profiles_parse(const char *text, uint64_t *ret_profiles)
{
	uint64_t mask = 0;

	if (!strcmp(text, "auto")) {
		*ret_profiles = (UINT64_C(1) << ARRAY_LEN(profiles)) - 1;
		return 0;
	}
	for (const char *end; text; text = *end ? end + 1 : NULL) {
		bool known = false;
		size_t len;

		end = strchrnul(text, ':');
		len = (size_t)(end - text);
		known = len == strlen("generic") && !memcmp(text, "generic", len);
		for (size_t i = 0; i < ARRAY_LEN(profiles); i++)
			if (strlen(profiles[i].name) == len && !memcmp(text, profiles[i].name, len)) {
				mask |= UINT64_C(1) << i;
				known = true;
			}
		if (!known)
			return -EINVAL;
	}
	*ret_profiles = mask;
	return 0;
}

char *ckpt_profiles_text(uint64_t mask)
{
	char text[512] = "";
	uint64_t all;

	(void)ckpt_profiles_parse("auto", &all);
	if (mask == all)
		return strdup("auto");
	for (size_t i = 0; i < ARRAY_LEN(profiles); i++) {
		bool again = false;

		for (size_t k = 0; k < i; k++)
			again |= !strcmp(profiles[k].name, profiles[i].name);
		if (is_on(mask, &profiles[i]) && !again)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", *text ? ":" : "",
				 profiles[i].name);
	}
	return strdup(*text ? text : "generic");
}

static bool is_about(const struct profile *p, enum ckpt_event act, const char *from, const char *name, bool beside)
{
	return p->act == act && p->beside == beside && ckpt_name_matches(p->file, name) &&
	       (!p->from || (from && !strcmp(p->from, from)));
}

bool ckpt_profile_watches(uint64_t mask, enum ckpt_event act, const char *from, const char *name, bool beside)
{
	for (size_t i = 0; i < ARRAY_LEN(profiles); i++)
		if (is_on(mask, &profiles[i]) && is_about(&profiles[i], act, from, name, beside))
			return true;
	return false;
}

bool ckpt_profile_renames(uint64_t mask, const char *from)
{
	for (size_t i = 0; i < ARRAY_LEN(profiles); i++)
		if (is_on(mask, &profiles[i]) && profiles[i].from && !strcmp(profiles[i].from, from))
			return true;
	return false;
}

bool ckpt_profile_is_late(uint64_t mask, const char *name)
{
	if (ckpt_profile_watches(mask, CKPT_EVENT_CLOSE, NULL, name, false))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(profiles); i++)
		for (size_t k = 0; k < ARRAY_LEN(profiles[i].late) && profiles[i].late[k]; k++)
			if (is_on(mask, &profiles[i]) && ckpt_name_matches(profiles[i].late[k], name))
				return true;
	return false;
}

static bool has_form(const struct profile *p, const char *dir)
{
	for (size_t i = 0; i < ARRAY_LEN(p->dirs) && p->dirs[i]; i++)
		if (ckpt_name_matches(p->dirs[i], dir))
			return true;
	return !p->dirs[0];
}

static void say_event(const struct profile *p, struct ckpt_completion *c)
{
	static const char *const acts[] = {
		[CKPT_EVENT_CLOSE] = "close", [CKPT_EVENT_RENAME] = "rename", [CKPT_EVENT_UNLINK] = "unlink"};

	c->act = p->act;
	c->profile = p->name;
	c->leaves_late = p->late[0];
	c->awaits_like = p->awaits_like;
	c->settles = p->settles;
	snprintf(c->event, sizeof(c->event), "%s:%s", acts[p->act],
		 strlen(p->file) > sizeof(c->event) - sizeof("rename:") ? "tracker" : p->file);
}

int ckpt_profile_completes(uint64_t mask, const struct ckpt_deed *deed, size_t *row, struct ckpt_completion *ret)
{
	struct look look = {.deed = deed};
	struct ckpt_completion wanted = {0};
	int rc = -ENOENT, first = -ENOENT;

	if (deed->dir && ckpt_name_is_temp(deed->dir))
		return -ENOENT;
	while (rc && *row < ARRAY_LEN(profiles)) {
		const struct profile *p = &profiles[(*row)++];

		if (!is_on(mask, p) || !is_about(p, deed->act, deed->from, deed->name, !deed->dir) ||
		    (deed->dir && !has_form(p, deed->dir)))
			continue;
		*ret = (struct ckpt_completion){0};
		say_event(p, ret);
		rc = p->check(&look, ret);
		if (!rc && p->beside &&
		    (ckpt_name_check(ret->beside, strlen(ret->beside)) || ckpt_name_is_temp(ret->beside)))
			rc = -ENOENT;
		if (rc && first == -ENOENT) {
			first = rc;
			wanted = *ret;
		}
	}
	json_decref(look.json);
	if (!rc)
		return 0;
	*ret = wanted;
	return first;
}

static const struct profile *row_of(const struct ckpt_completion *c)
{
	for (size_t i = 0; i < ARRAY_LEN(profiles); i++) {
		const struct profile *p = &profiles[i];
		struct ckpt_completion is = {0};

		if (!p->act || p->beside != (*c->beside != '\0'))
			continue;
		say_event(p, &is);
		if (!strcmp(is.profile, c->profile) && !strcmp(is.event, c->event))
			return p;
	}
	return NULL;
}

int ckpt_profile_knows(const struct ckpt_completion *c, int dirfd)
{
	const struct profile *p = row_of(c);

	if (!p || !p->beside)
		return -ENOENT;
	return p->inside[0] ? holds_like(dirfd, p->inside, ARRAY_LEN(p->inside)) : 0;
}

int ckpt_profile_lacks(const struct ckpt_completion *c, int dirfd, bool again, char ret_name[CKPT_NAME_MAX + 1])
{
	const struct profile *p = row_of(c);

	return p && p->lacks ? p->lacks(dirfd, again, ret_name) : 0;
}

bool ckpt_profile_awaits_like(const struct ckpt_completion *c, const char *name)
{
	const struct profile *p = row_of(c);

	return p && p->awaits_like && ckpt_name_matches(p->awaits_like, name);
}

const char *ckpt_profile_of_temp(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(temp_names); i++)
		if (ckpt_name_matches(temp_names[i].form, name))
			return temp_names[i].profile;
	return "generic";
}

static const char *usual(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(usual_names); i++)
		if (ckpt_name_matches(usual_names[i].form, name))
			return usual_names[i].profile;
	return NULL;
}

const char *ckpt_profile_of_name(const char *name)
{
	return ckpt_name_is_temp(name) ? ckpt_profile_of_temp(name) : usual(name);
}

const char *ckpt_profile_awaits(uint64_t mask, const char *name)
{
	const char *whose = usual(name);

	for (size_t i = 0; whose && i < ARRAY_LEN(profiles); i++)
		if (is_on(mask, &profiles[i]) && profiles[i].awaits && !strcmp(profiles[i].name, whose))
			return profiles[i].awaits;
	return ckpt_name_is_temp(name) ? "its rename to a name that is no temporary one" : NULL;
}

bool ckpt_profile_is_part(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (ckpt_name_matches(parts[i], name))
			return true;
	return false;
}

bool ckpt_profile_is_copier(const char *comm)
{
	for (size_t i = 0; i < ARRAY_LEN(copiers); i++)
		if (!strcmp(copiers[i], comm))
			return true;
	return false;
}
