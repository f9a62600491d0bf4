// The calls of libckptfs one after the other, as stdin names them, for test_library.py: each answers with a line.
//
//	open PATH [create] | begin NAME [force] | write FILE TEXT | commit [JSON] | abort | leave | find NAME | latest FOLDER BY | resolve FOLDER PARAMETERS | note NAME JSON | wait NAME NS [sealed] | signals | handle | should [FOLDER/]STEP [force] [0|1|2|-errno: what a function says]
//	list FOLDER TIMES THREADS: so many threads list so often, all at once
#include <ckptfs.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ckpt *c;
static struct ckpt_save *save;
static char words[4][4096];

static void answer(int rc)
{
	printf("%s\n", rc ? strerrorname_np(-rc) : "ok");
}

static void answer_info(int rc, struct ckpt_info *const *info)
{
	const struct ckpt_info *i = rc ? NULL : *info;

	if (rc) {
		answer(rc);
		return;
	}
	printf("%s %lu %s %s\n", i->name, (unsigned long)i->version, i->path ? i->path : "-", i->metadata);
	ckpt_info_free(*info);
}

static int write_file(void)
{
	char path[16384];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", ckpt_save_path(save), words[1]);
	f = fopen(path, "we");
	if (!f)
		return -errno;
	fputs(words[2], f);
	if (strcmp(words[3], "open"))
		fclose(f);
	return 0;
}

static int times;

static void *list(void *arg __attribute__((unused)))
{
	for (int i = 0; i < times; i++) {
		struct ckpt_list *l;
		int rc = ckpt_list(c, words[1], &l);

		if (rc)
			return (void *)strerrorname_np(-rc);
		ckpt_list_free(l);
	}
	return NULL;
}

static void list_at_once(void)
{
	pthread_t threads[16];
	int count = atoi(words[3]);
	void *failed = NULL;

	times = atoi(words[2]);
	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, list, NULL);
	for (int i = 0; i < count; i++) {
		void *one;

		pthread_join(threads[i], &one);
		failed = one ? one : failed;
	}
	printf("%s\n", failed ? (const char *)failed : "ok");
}

// Which signals are blocked, and which have a handler that is not the default.
static void say_signals(void)
{
	sigset_t blocked;

	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	for (int number = 1; number < 32; number++) {
		struct sigaction is;

		if (!sigaction(number, NULL, &is) && (is.sa_handler != SIG_DFL || sigismember(&blocked, number)))
			printf("%d ", number);
	}
	puts(".");
}

static void nothing(int number __attribute__((unused)))
{
}

// As Python does it for each handler of its own: what the signal interrupts is not begun again.
static int handle(void)
{
	const struct sigaction is = {.sa_handler = nothing};

	return sigaction(SIGUSR1, &is, NULL) ? -errno : 0;
}

static int says(void *arg, const struct ckpt_question *q)
{
	printf("%lld: %lld of %llu%s%s, ", (long long)q->step, (long long)q->latest, (unsigned long long)q->count,
	       q->flags & CKPT_QUESTION_SAVING ? " saving" : "",
	       q->flags & CKPT_QUESTION_PREEMPTED ? " preempted" : "");
	return atoi(arg);
}

static void should_save(void)
{
	static const char *const names[] = {"no", "temporary", "permanent"};
	bool force = !strcmp(words[2], "force");
	const char *own = force ? words[3] : words[2];
	char *slash = strrchr(words[1], '/');
	const char *number = slash ? slash + 1 : words[1], *folder = slash ? words[1] : NULL;
	int is, rc;

	if (slash)
		*slash = '\0';
	rc = ckpt_should_save(c, folder, atoll(number), force ? CKPT_FORCE : 0, *own ? says : NULL, (void *)own, &is);

	if (rc)
		answer(rc);
	else
		puts(names[is]);
}

// "-": none.
static const char *folder_of(const char *word)
{
	return strcmp(word, "-") ? word : NULL;
}

static void resolve(void)
{
	struct ckpt_choice *choice;
	int rc = ckpt_resolve(c, folder_of(words[1]), NULL, words[2], NULL, &choice);

	if (rc) {
		answer(rc);
		return;
	}
	printf("%d %s\n", choice->mode, choice->step ? choice->step : "-");
	ckpt_choice_free(choice);
}

static void call(void)
{
	const char *verb = words[0];
	struct ckpt_info *info = NULL;

	if (!strcmp(verb, "open"))
		answer(ckpt_open(words[1], *words[2] ? CKPT_CREATE : 0, &c));
	else if (!strcmp(verb, "begin"))
		answer(ckpt_begin(c, words[1], strcmp(words[2], "force") ? 0 : CKPT_FORCE, &save));
	else if (!strcmp(verb, "write"))
		answer(write_file());
	else if (!strcmp(verb, "commit"))
		answer(ckpt_save_commit(save, *words[1] ? words[1] : NULL));
	else if (!strcmp(verb, "abort"))
		answer(ckpt_save_abort(save));
	else if (!strcmp(verb, "leave")) {
		ckpt_save_free(save);
		save = NULL;
		answer(0);
	} else if (!strcmp(verb, "find"))
		answer_info(ckpt_find(c, words[1], &info), &info);
	else if (!strcmp(verb, "latest"))
		answer_info(ckpt_find_latest(c, folder_of(words[1]), *words[2] ? words[2] : NULL, &info), &info);
	else if (!strcmp(verb, "resolve"))
		resolve();
	else if (!strcmp(verb, "note"))
		answer(ckpt_step_note(c, words[1], words[2]));
	else if (!strcmp(verb, "wait"))
		answer(ckpt_wait(c, words[1], *words[3] ? CKPT_WAIT_SEALED : 0, atoll(words[2])));
	else if (!strcmp(verb, "should"))
		should_save();
	else if (!strcmp(verb, "list"))
		list_at_once();
	else if (!strcmp(verb, "signals"))
		say_signals();
	else if (!strcmp(verb, "handle"))
		answer(handle());
	else
		abort();
}

// Words are parted by tabs.
int main(void)
{
	char line[sizeof(words)];

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		char *rest = line;

		line[strcspn(line, "\n")] = '\0';
		for (int i = 0; i < 4; i++)
			snprintf(words[i], sizeof(words[i]), "%s", rest ? strsep(&rest, "\t") : "");
		call();
	}
	ckpt_save_free(save);
	ckpt_close(c);
	return 0;
}
