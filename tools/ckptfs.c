// ckptfs: a filesystem that presents the checkpoints of training runs as plain files.
//
// A map of the program
//   tools/     this command line: one file per verb, and what they share
//     ckptfs         main(), the table of verbs
//     verb help      options, wrong usage; --help, man pages and completion from one source
//     operand        STORE, STEP and PATH
//     remote_place push   a store with a URL: its work directory, and sending what verbs have done
//     output progress units   tables, JSON, failures; the bar; sizes, durations, times
//     config         the store's settings, for people, JSON and -o
//     listing where  steps and files as rows; conditions on them
//     selection      the steps that a list of words names
//     new_step step_files   a step made by a verb, filled past any mount; the files of one, into a directory
//     copy_plan same_files  what one store has of another
//     verb_*         the verbs; verb_mount also is mount.fuse.ckptfs
//   fs/        serves a mount: FUSE requests in, replies out (fs/mount.h is its door)
//   core/      what a store is (start at core/step/store.h and core/step/step.h), in rooms: base codec array record index, which
//              know nothing of those after them; store stage commit tier gc policy. ckptfs.h is the library libckptfs, for other
//              programs
//   backends/  where records and manifests live (core/objects/objects.h)
//   core/FORMAT.md  every byte on disk
#include "core/base/util.h"
#include "core/step/holder.h"
#include "core/step/store.h"
#include "fs/abilities.h"
#include "tools/help.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/push.h"
#include "tools/verb.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>

static int verb_help(int argc, char **argv);

static const struct ckpt_verb verbs[] = {
	{"init", "makes an empty store", ckpt_verb_init},
	{"mount", "mounts a store", ckpt_verb_mount},
	{"umount", "waits for pending work, then unmounts", ckpt_verb_umount},
	{"ls", "lists steps, or the files of a step", ckpt_verb_ls},
	{"info", "shows one store or step in full", ckpt_verb_info},
	{"log", "shows what happened, and who did it", ckpt_verb_log},
	{"latest", "prints the name of the newest step", ckpt_verb_latest},
	{"resolve", "prints which checkpoint a run loads when it starts", ckpt_verb_resolve},
	{"cat", "writes a file of a step to stdout", ckpt_verb_cat},
	{"verify", "checks that everything is there and undamaged", ckpt_verb_verify},
	{"seal", "reads steps once, and keeps their SHA-256", ckpt_verb_seal},
	{"cool", "compresses steps into packs", ckpt_verb_cool},
	{"warm", "makes packed steps plain files again", ckpt_verb_warm},
	{"diff", "shows which files of two steps differ", ckpt_verb_diff},
	{"du", "shows the size of steps, and their room on disk", ckpt_verb_du},
	{"rm", "moves steps to the trash", ckpt_verb_rm},
	{"mv", "renames a step", ckpt_verb_mv},
	{"note", "adds metrics and extras to a committed step", ckpt_verb_note},
	{"pin", "keeps steps from being deleted", ckpt_verb_pin},
	{"unpin", "lets steps be deleted again", ckpt_verb_unpin},
	{"promote", "makes temporary steps permanent", ckpt_verb_promote},
	{"undelete", "restores steps from the trash", ckpt_verb_undelete},
	{"restore", "makes an older version of a step current again", ckpt_verb_restore},
	{"trash", "lists deleted steps, or frees their room", ckpt_verb_trash},
	{"should-save", "says whether a step is to be saved", ckpt_verb_should_save},
	{"preempt", "announces a preemption", ckpt_verb_preempt},
	{"policy", "shows or changes when steps are saved, and which stay", ckpt_verb_policy},
	{"retain", "removes the steps that the policy does not keep", ckpt_verb_retain},
	{"sessions", "lists unfinished steps: live, interrupted, left over", ckpt_verb_sessions},
	{"save", "copies a folder in, as a step", ckpt_verb_save},
	{"get", "copies a step into a folder", ckpt_verb_get},
	{"copy", "copies steps into another store", ckpt_verb_copy},
	{"remote", "shows and changes what a store has in an object store", ckpt_verb_remote},
	{"gc", "removes packs that nothing needs", ckpt_verb_gc},
	{"index", "checks the index, or rebuilds it", ckpt_verb_index},
	{"arrays", "lists the arrays of a step, of any format", ckpt_verb_arrays},
	{"check", "says what is wrong with the arrays of a step", ckpt_verb_check},
	{"export", "writes arrays of a step as files of a format", ckpt_verb_export},
	{"derive", "makes a step of arrays of another one", ckpt_verb_derive},
	{"convert", "makes a step of arrays of another one, changed by rules", ckpt_verb_convert},
	{"begin", "opens a staged step by hand", ckpt_verb_begin},
	{"commit", "completes a staged step by hand", ckpt_verb_commit},
	{"resume", "gives a left-over session its name again", ckpt_verb_resume},
	{"abort", "drops a staged step", ckpt_verb_abort},
	{"status", "shows mounts, running saves, room and the last error", ckpt_verb_status},
	{"wait", "waits until a step is committed, or all work is done", ckpt_verb_wait},
	{"config", "shows or changes the settings of a store", ckpt_verb_config},
	{"doctor", "says what this machine can do, and what is missing", ckpt_verb_doctor},
	{"bench", "measures speed here, against the plain filesystem", ckpt_verb_bench},
	{"help", "shows the manual of a verb", verb_help},
};

static const struct ckpt_verb mount_helper = {"mount.fuse.ckptfs", "", ckpt_verb_mount_helper};

static const struct ckpt_verb *find_verb(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	return NULL;
}

static int unknown_verb(const char *name)
{
	const char *names[ARRAY_LEN(verbs) + 1], *nearest;
	CLEANUP_FREE char *hint = NULL;

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		names[i] = verbs[i].name;
	names[ARRAY_LEN(verbs)] = NULL;
	nearest = ckpt_nearest(name, names);
	if (!strcmp(name, "unmount"))
		nearest = "umount";
	hint = nearest ? ckpt_text("did you mean `ckptfs %s`?", nearest) : ckpt_text("`ckptfs --help` lists the verbs");
	return ckpt_usage(name, hint, "no such verb");
}

static int run_verb(const struct ckpt_verb *verb, int argc, char **argv)
{
	int status, pushed;

	argv[0] = ckpt_text(verb == &mount_helper ? "%s" : "ckptfs %s", verb->name);
	status = verb->run(argc, argv);
	fflush(stdout); // the answer, whatever becomes of the push
	pushed = ckpt_push_done();
	return ckpt_output_finish(status ? status : pushed);
}

static int print_help(void)
{
	puts("Usage: ckptfs VERB [OPTION...] [STORE] ...\n"
	     "Presents the checkpoints of training runs as plain files.\n");
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		printf("  %-12s %s\n", verbs[i].name, verbs[i].summary);
	puts("\n"
	     "STORE is a directory, s3://BUCKET/PREFIX or a mount point. Without it a verb takes "
	     "$CKPTFS_STORE,\n"
	     "else the mount that the current directory is in. `ckptfs VERB --help` says more.\n"
	     "\n"
	     "Examples:\n"
	     "  ckptfs mount /data/run42 /ckpt\n"
	     "  ckptfs ls /ckpt");
	return 0;
}

static int print_version(void)
{
	struct ckpt_mount_abilities can;

	ckpt_mount_abilities(&can);
	printf("ckptfs %s\nformat %d\nlibfuse %s\npassthrough %s\nio_uring %s\n", CKPT_VERSION, CKPT_STORE_FORMAT,
	       can.libfuse, can.passthrough_built ? "yes" : "no", can.io_uring_built ? "yes" : "no");
	return 0;
}

// --- help -----------------------------------------------------------------------------------------------------------

static int print_form_of(const struct ckpt_verb *verb, enum ckpt_help_form form)
{
	char *args[] = {NULL, "--help", NULL};

	ckpt_help_form = form;
	return run_verb(verb, 2, args);
}

// Shows the page on a terminal. Returns when that cannot be done here.
static void show_by_man(const struct ckpt_verb *verb)
{
	int fds[2];
	pid_t pid;

	if (!isatty(STDOUT_FILENO) || pipe2(fds, O_CLOEXEC))
		return;
	pid = fork();
	if (!pid) {
		dup2(fds[1], STDOUT_FILENO);
		exit(print_form_of(verb, CKPT_HELP_PAGE));
	}
	if (pid > 0) {
		dup2(fds[0], STDIN_FILENO);
		execlp("man", "man", "-l", "-", NULL);
	}
	close(fds[0]);
	close(fds[1]);
}

struct help {
	bool man, words;
};

static int help_option(int key, char *arg __attribute__((unused)), void *input)
{
	struct help *h = input;

	*(key == 'm' ? &h->man : &h->words) = true;
	return 0;
}

static int print_words(void)
{
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		puts(verbs[i].name);
	return 0;
}

static int print_common(void)
{
	ckpt_verb_help_common();
	return 0;
}

static int verb_help(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"man", 'm', NULL, 0,
		 "print the part of the man page about VERB, or about the options of all verbs, as "
		 "troff",
		 0},
		{"words", 'w', NULL, 0, "print the words for shell completion: the verbs, or the options of VERB", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[VERB]",
		.doc = "Shows the manual of a verb, or lists the verbs.\v"
		       "Examples:\n"
		       "  ckptfs help mount\n"
		       "  ckptfs help --words mount",
		.options = options,
		.option = help_option,
		.operands_max = 1,
		.no_json = true,
		.no_options = true,
	};
	const struct ckpt_verb *verb;
	struct help h = {0};
	struct ckpt_words words;

	ckpt_verb_parse(&syntax, argc, argv, &h, &words);
	if (!words.count)
		return h.man ? print_common() : h.words ? print_words() : print_help();
	verb = strcmp(words.at[0], mount_helper.name) ? find_verb(words.at[0]) : &mount_helper;
	if (!verb)
		return unknown_verb(words.at[0]);
	if (h.man)
		return print_form_of(verb, CKPT_HELP_PART);
	if (h.words)
		return print_form_of(verb, CKPT_HELP_WORDS);
	show_by_man(verb);
	return print_form_of(verb, CKPT_HELP_TEXT);
}

// Whatever a verb changes on disk it changes in acts that a crash may interrupt, so that it may end at any point.
static void on_signal(int number)
{
	ckpt_progress_hide_in_signal();
	_exit(128 + number);
}

// Started without one of the three standard descriptors, the next file that is opened would get its number: text for the
// user would be written into it, and a mount that goes into the background would close it.
static void standard_descriptors_fill(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
			_exit(1);
}

static void tell_waiting(pid_t pid)
{
	ckpt_note("process %d was killed and still waits for the disk; waiting until it has ended", (int)pid);
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/');
	const struct ckpt_verb *verb;

	standard_descriptors_fill();
	setlocale(LC_CTYPE, "");
	ckpt_holder_tell = tell_waiting;
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	signal(SIGCHLD,
	       SIG_DFL); // who starts us may ignore it, and then nobody knows how a program of the user's has ended
	name = name ? name + 1 : argv[0];
	if (!strcmp(name, "mount.fuse.ckptfs") || !strcmp(name, "mount.ckptfs"))
		return run_verb(&mount_helper, argc, argv);
	if (argc < 2)
		return ckpt_output_finish(ckpt_usage(NULL, "`ckptfs --help` lists the verbs", "no verb was given"));
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return ckpt_output_finish(print_help());
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
		return ckpt_output_finish(print_version());
	verb = find_verb(argv[1]);
	return verb ? run_verb(verb, argc - 1, argv + 1) : ckpt_output_finish(unknown_verb(argv[1]));
}
