// Acts are lines of words. Of a file its size says who has written it: each act of a scenario has another.
//
//   TURN     make IDENTITY | mount | turn
//   USER     see `verbs` below
//   COLLECT  collect
#include "tests/model/node.h"

#include "tests/model/client.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/cold/file.h"
#include "core/jobs/jobs.h"
#include "core/remote/collect.h"
#include "core/remote/remote.h"
#include "core/remote/snapshots.h"
#include "core/remote/tree.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/move.h"
#include "core/save/pin.h"
#include "core/save/replace.h"
#include "core/save/stage.h"
#include "core/state/shared.h"
#include "core/step/amending.h"
#include "core/step/trash.h"
#include "core/store/open.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define AHEAD_NS INT64_C(3600000000000) // of the machine's clock: no file was changed just now
#define TURN_NS INT64_C(5000000000)     // between two turns
#define WRITERS_NS INT64_C(1000000)

static struct ckpt_store *store;
static const char *root;
static int64_t passed_ns; // atomic
static uint64_t chance;   // atomic

// --- Its machine --------------------------------------------------------------------------------------------------------

static int64_t (*machine_now)(void);

static int64_t now_ns(void)
{
	return machine_now() + AHEAD_NS + __atomic_load_n(&passed_ns, __ATOMIC_RELAXED);
}

static int64_t mono_ns(void)
{
	return 1 + __atomic_add_fetch(&passed_ns, 1000, __ATOMIC_RELAXED);
}

static void sleep_ns(int64_t ns)
{
	__atomic_add_fetch(&passed_ns, ns, __ATOMIC_RELAXED);
	(void)client_sleep();
}

// splitmix64
static int random_bytes(void *buf, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		uint64_t x = __atomic_add_fetch(&chance, UINT64_C(0x9e3779b97f4a7c15), __ATOMIC_RELAXED);

		x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
		x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
		((uint8_t *)buf)[i] = (uint8_t)(x >> 56);
	}
	return 0;
}

static int sync_nothing(int fd)
{
	(void)fd;
	return 0;
}

static int64_t waited_nothing(void)
{
	return 0;
}

static void replace_machine(uint64_t seed)
{
	machine_now = ckpt_sys.now_ns;
	chance = seed;
	ckpt_sys.now_ns = now_ns;
	ckpt_sys.mono_ns = mono_ns;
	ckpt_sys.sleep_ns = sleep_ns;
	ckpt_sys.random = random_bytes;
	ckpt_sys.waited_ns = waited_nothing;
	ckpt_sys.fsync = ckpt_sys.fdatasync = ckpt_sys.syncfs = sync_nothing; // a process dies here, not a machine
}

// --- Files --------------------------------------------------------------------------------------------------------------

// As many bytes as that; the first say what a tracker names.
static void text_of(char *buf, size_t bytes, const char *names)
{
	memset(buf, '.', bytes);
	if (names)
		memcpy(buf, names, MIN(strlen(names), bytes));
	buf[bytes] = '\0';
}

static int write_at(int dirfd, const char *name, size_t bytes, const char *names, int flags)
{
	char text[1024];
	CLEANUP_FD int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);

	if (fd < 0)
		return -errno;
	text_of(text, bytes, names);
	return bytes && pwrite(fd, text, bytes, 0) != (ssize_t)bytes ? -errno : 0;
}

// --- Steps --------------------------------------------------------------------------------------------------------------

// The newest of this name in that state.
static struct ckpt_step *find(const char *name, enum ckpt_step_state state)
{
	struct ckpt_step **steps, *found = NULL;
	size_t count;

	if (ckpt_step_list(store, NULL, 1u << state, &steps, &count))
		return NULL;
	for (size_t i = 0; i < count; i++)
		if (!strcmp(steps[i]->name, name)) {
			ckpt_step_unref(found);
			found = ckpt_step_ref(steps[i]);
		}
	ckpt_step_list_free(steps, count);
	return found;
}

static int save(char **w, char *ret)
{
	struct ckpt_commit how = {
		.folder_id = "", .name = w[1], .event = "marker", .profile = "generic", .writers_ns = WRITERS_NS};
	struct ckpt_step *step, *replaced = NULL;
	int rc = ckpt_replace_begin(store, "", w[1], 0755, getuid(), getgid(), getpid(), &step);

	if (rc)
		return rc;
	rc = write_at(step->dirfd, "f", (size_t)atoi(w[2]), NULL, O_EXCL);
	if (!rc)
		rc = ckpt_replace_commit(step, &how, &replaced);
	sprintf(ret, "%s %s", step->session, replaced ? replaced->session : "-");
	ckpt_step_unref(replaced);
	ckpt_step_unref(step);
	return rc;
}

static int raw_file(struct ckpt_step *step, size_t bytes, char raw[CKPT_AMENDING_RAW_MAX])
{
	CLEANUP_FD int dirfd = ckpt_sys.open(store->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
	int rc = 0;

	if (dirfd == -ENOENT && !(rc = ckpt_sys.mkdir(store->sessions_fd, step->session, 0700)))
		return raw_file(step, bytes, raw);
	rc = rc ? rc : dirfd < 0 ? dirfd : ckpt_amending_raw_name(raw);
	return rc ? rc : write_at(dirfd, raw, bytes, NULL, O_EXCL);
}

static int add(struct ckpt_step *step, char **w)
{
	char raw[CKPT_AMENDING_RAW_MAX];
	int rc = ckpt_amending_check_free(step, w[2]);

	if (!rc)
		rc = raw_file(step, (size_t)atoi(w[3]), raw);
	if (!rc)
		rc = ckpt_amending_begin(step, w[2], raw);
	if (!rc)
		rc = ckpt_amend_add(step, w[2]);
	if (!rc)
		ckpt_amending_forget(step, w[2]);
	return rc;
}

static int edit(struct ckpt_step *step, char **w)
{
	char raw[CKPT_AMENDING_RAW_MAX];
	int rc = ckpt_amending_settle(step);

	if (!rc)
		rc = raw_file(step, (size_t)atoi(w[3]), raw);
	return rc ? rc : ckpt_amend_replace(step, w[2], raw);
}

static int on_step(char **w, char *ret)
{
	bool trash = !strcmp(w[0], "undelete") || !strcmp(w[0], "expire");
	struct ckpt_step *step = find(w[1], trash ? CKPT_STEP_DELETED : CKPT_STEP_COMMITTED);
	int rc = -ENOENT;

	if (!step)
		return rc;
	sprintf(ret, "%s -", step->session);
	if (!strcmp(w[0], "delete"))
		rc = ckpt_delete(step);
	else if (!strcmp(w[0], "undelete"))
		rc = ckpt_undelete(step);
	else if (!strcmp(w[0], "expire"))
		rc = ckpt_expire_at_once(step);
	else if (!strcmp(w[0], "rename"))
		rc = ckpt_move(step, "", w[2]);
	else if (!strcmp(w[0], "pin"))
		rc = ckpt_pin(step, true);
	else if (!strcmp(w[0], "add"))
		rc = add(step, w);
	else if (!strcmp(w[0], "edit"))
		rc = edit(step, w);
	else if (!strcmp(w[0], "cut"))
		rc = ckpt_amend_remove(step, w[2]);
	ckpt_step_unref(step);
	return rc;
}

// --- Plain files --------------------------------------------------------------------------------------------------------

static void told(const char *name)
{
	ckpt_tree_take_name(ckpt_remote_tree(*ckpt_remote_of(store)), store->tree_fd, name);
}

static int on_tree(char **w, char *ret)
{
	int rc = -EINVAL;

	(void)ret;
	if (!strcmp(w[0], "write"))
		rc = write_at(store->tree_fd, w[1], (size_t)atoi(w[2]), w[3], O_TRUNC);
	else if (!strcmp(w[0], "swap")) {
		rc = write_at(store->tree_fd, "new", (size_t)atoi(w[2]), w[3], O_TRUNC);
		rc = rc ? rc : renameat(store->tree_fd, "new", store->tree_fd, w[1]) ? -errno : 0;
	} else if (!strcmp(w[0], "unlink"))
		rc = unlinkat(store->tree_fd, w[1], 0) ? -errno : 0;
	else if (!strcmp(w[0], "mkdir"))
		rc = mkdirat(store->tree_fd, w[1], 0755) ? -errno : 0;
	else if (!strcmp(w[0], "move"))
		rc = renameat(store->tree_fd, w[1], store->tree_fd, w[2]) ? -errno : 0;
	if (!rc && (!strcmp(w[0], "mkdir") || !strcmp(w[0], "move")))
		ckpt_tree_touch(ckpt_remote_tree(*ckpt_remote_of(store)));
	else if (!rc)
		told(w[1]);
	return rc;
}

// --- Itself -------------------------------------------------------------------------------------------------------------

static int make(char **w, char *ret)
{
	json_error_t error;
	struct ckpt_store_of of = {.identity = json_loads(w[1], 0, &error),
				   .remote = json_pack("{s:s, s:b}", "url", "model://", "probed", 1)};
	int rc = ckpt_store_init_with(root, NULL, &of);

	(void)ret;
	json_decref(of.identity);
	json_decref(of.remote);
	return rc;
}

static int mount_it(char **w, char *ret)
{
	int rc;

	(void)w;
	(void)ret;
	client_at_once(true);
	rc = ckpt_store_open(root, CKPT_STORE_WRITE, NULL, &store);
	if (!rc) {
		ckpt_trash_stop(*ckpt_trash_of(store));
		ckpt_jobs_by_hand(store->jobs);
		rc = ckpt_remote_start(*ckpt_remote_of(store));
		client_lock(&store->acts_lock.mutex);
	}
	client_at_once(false);
	return rc;
}

static int turn(char **w, char *ret)
{
	const char *name;

	(void)w;
	(void)ret;
	__atomic_add_fetch(&passed_ns, TURN_NS, __ATOMIC_RELAXED);
	ckpt_remote_wake(*ckpt_remote_of(store));
	do
		name = ckpt_jobs_run_next(store->jobs, NULL);
	while (name && strcmp(name, "remote") != 0);
	return 0;
}

static int collect(char **w, char *ret)
{
	const struct ckpt_collect_how how = {.force = true};
	struct ckpt_collect_done done;
	int rc = ckpt_collect(store, &how, &done);

	(void)w;
	sprintf(ret, "%" PRIu64 " %" PRIu64, done.condemned.objects, done.deleted.objects);
	return rc;
}

static int snapshot(char **w, char *ret)
{
	(void)w;
	(void)ret;
	return ckpt_journal_snapshot(store->journal, true);
}

static int snapshot_remote(char **w, char *ret)
{
	(void)w;
	(void)ret;
	return ckpt_snapshots_put(store, true);
}

static const struct {
	const char *word;
	int (*act)(char **words, char *ret);
} verbs[] = {
	{"make", make},         {"mount", mount_it},        {"turn", turn},      {"collect", collect},
	{"snapshot", snapshot}, {"offer", snapshot_remote}, {"save", save},      {"delete", on_step},
	{"undelete", on_step},  {"expire", on_step},        {"rename", on_step}, {"pin", on_step},
	{"add", on_step},       {"edit", on_step},          {"cut", on_step},    {"write", on_tree},
	{"swap", on_tree},      {"unlink", on_tree},        {"mkdir", on_tree},  {"move", on_tree},
};

// --- What it shows ------------------------------------------------------------------------------------------------------

struct text {
	char *at;
	size_t len;
};

static void say(struct text *t, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	t->len += (size_t)vsnprintf(t->at + t->len, WIRE_BYTES_MAX - t->len, format, args);
	va_end(args);
	if (t->len >= WIRE_BYTES_MAX)
		abort();
}

// KIND ID NAME last state pinned
static void say_step(struct text *t, char kind, const struct ckpt_state_step *step)
{
	say(t, "%c %s %s %u %c %d\n", kind, step->id, step->is.name, ckpt_state_last(step),
	    step->deleted_by ? 'T' : 'L', step->is.pinned);
}

static int say_state(void *arg, const struct ckpt_state *state)
{
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	struct text *t = arg;
	size_t count;

	say(t, "P %" PRIu64 "\n", ckpt_state_remote(state).seq);
	if (ckpt_state_steps(state, &steps, &count))
		abort();
	for (size_t i = 0; i < count; i++)
		say_step(t, steps[i]->since ? 'c' : 's', steps[i]);
	{ // as the remote's log has those that have changed here
		struct ckpt_state_step *const *changed = ckpt_state_changed(state, &count);

		for (size_t i = 0; i < count; i++) {
			if (changed[i]->gone)
				say(t, "g %s\n", changed[i]->id);
			if (changed[i]->shared)
				say_step(t, 'r', changed[i]->shared);
		}
	}
	return 0;
}

static void say_listed(struct text *t)
{
	struct ckpt_step **steps;
	size_t count;

	if (ckpt_step_list(store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		abort();
	for (size_t i = 0; i < count; i++)
		say(t, "l %s %s\n", steps[i]->session, steps[i]->name);
	ckpt_step_list_free(steps, count);
}

static void say_tree(struct text *t, int dirfd, const char *path)
{
	DIR *dir = fdopendir(dup(dirfd));
	struct dirent *e;

	rewinddir(dir);
	while ((e = readdir(dir))) {
		char inner[512], text[1024];
		CLEANUP_FD int fd = -1;
		ssize_t n;

		if (*e->d_name == '.')
			continue;
		snprintf(inner, sizeof(inner), "%s%s", path, e->d_name);
		fd = openat(dirfd, e->d_name, O_RDONLY | O_CLOEXEC);
		n = pread(fd, text, sizeof(text) - 1, 0);
		if (n < 0) {
			say(t, "d %s\n", inner);
			strcat(inner, "/");
			say_tree(t, fd, inner);
		} else {
			text[n] = '\0';
			text[strcspn(text, ".")] = '\0';
			say(t, "f %s %zd %s\n", inner, n, *text ? text : "-");
		}
	}
	closedir(dir);
}

static void tell_state(struct text *t)
{
	struct ckpt_remote_queue q;

	if (!store)
		return;
	(void)ckpt_journal_look(store->journal, say_state, t);
	ckpt_remote_queue(*ckpt_remote_of(store), &q);
	say(t, "q %" PRIu64 " %" PRIu64 "\n", q.steps, q.files);
	say_listed(t);
	say_tree(t, store->tree_fd, "");
}

// Each byte of each listed step is read.
static void tell_file(struct text *t, struct ckpt_step *step, struct ckpt_manifest *m, uint32_t i)
{
	char path[256], buf[1024];
	struct ckpt_file *f;
	struct ckpt_entry e;
	ssize_t n = -1;

	ckpt_manifest_entry(m, i, &e);
	if (e.type != CKPT_ENTRY_FILE)
		return;
	ckpt_manifest_path(m, i, path, sizeof(path));
	n = ckpt_file_open(step, m, i, &f);
	if (!n) {
		n = ckpt_file_read(f, buf, sizeof(buf), 0);
		ckpt_file_close(f);
	}
	for (ssize_t k = 0; k < n; k++)
		n = buf[k] == '.' ? n : -EBADMSG;
	say(t, "F %s %s %s %zd\n", step->session, step->name, path, n);
}

static void tell_files(struct text *t)
{
	struct ckpt_step **steps;
	size_t count;

	if (ckpt_step_list(store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		abort();
	for (size_t i = 0; i < count; i++) {
		struct ckpt_manifest *m;
		int rc = ckpt_step_read_current(steps[i], &m);

		if (rc)
			say(t, "F %s %s - %d\n", steps[i]->session, steps[i]->name, rc);
		for (uint32_t k = 0; !rc && k < ckpt_manifest_count(m); k++)
			tell_file(t, steps[i], m, k);
		if (!rc)
			ckpt_manifest_unref(m);
	}
	ckpt_step_list_free(steps, count);
}

// --- Threads ------------------------------------------------------------------------------------------------------------

static int socket_fd;

static int do_words(char *text, char *ret)
{
	char *words[6] = {NULL}, *rest = text;

	for (size_t i = 0; i < 5 && rest; i++)
		words[i] = i == 1 && !strcmp(words[0], "make") ? rest : strsep(&rest, " ");
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (!strcmp(verbs[i].word, words[0]))
			return verbs[i].act(words, ret);
	return -EINVAL;
}

static void *slot_thread(void *arg)
{
	static struct wire out[SLOTS];
	unsigned slot = (unsigned)(uintptr_t)arg;
	struct wire *done = &out[slot];

	client_is_slot(slot);
	for (;;) {
		char text[1024], ret[256] = "";

		snprintf(text, sizeof(text), "%.1000s", (const char *)client_wait(slot)->bytes);
		done->kind = WIRE_DONE;
		done->slot = slot;
		done->rc = do_words(text, ret);
		wire_text(done, ret);
		if (wire_send(socket_fd, done))
			_exit(3);
	}
	return NULL;
}

static void tell(const struct wire *what)
{
	static struct wire out;
	struct text t = {.at = (char *)out.bytes};

	*t.at = '\0';
	if (*what->bytes == 'F')
		tell_files(&t);
	else
		tell_state(&t);
	out.kind = WIRE_TOLD;
	out.len = (uint32_t)t.len;
	if (wire_send(socket_fd, &out))
		_exit(3);
}

static sem_t asks;
static struct wire asked;

// Not the main thread, which takes the answers of the bucket.
static void *tell_thread(void *arg)
{
	for (;;) {
		while (sem_wait(&asks))
			;
		tell(&asked);
	}
	return arg;
}

void node_run(int fd, const char *path, uint64_t seed)
{
	static struct wire in;
	pthread_t teller;

	socket_fd = fd;
	root = path;
	replace_machine(seed);
	client_begin(fd);
	for (uintptr_t i = 0; i < SLOTS; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, slot_thread, (void *)i))
			abort();
	}
	sem_init(&asks, 0, 0);
	if (pthread_create(&teller, NULL, tell_thread, NULL))
		abort();
	while (wire_receive(fd, &in, -1) > 0) {
		if (in.kind != WIRE_ASK) {
			client_take(&in);
			continue;
		}
		memcpy(&asked, &in, offsetof(struct wire, bytes) + in.len + 1);
		sem_post(&asks);
	}
	_exit(0);
}
