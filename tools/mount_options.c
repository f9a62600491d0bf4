#include "tools/mount_options.h"

#include "core/name.h"
#include "core/util.h"
#include "tools/operand.h"
#include "tools/output.h"
#include "tools/units.h"
#include "tools/verb.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>

typedef int apply_fn(struct ckpt_mount *m, const char *name, const char *value);

struct mount_option {
	const char *name;
	apply_fn *apply;   // NULL: not in this version
	const char *value; // what the help calls it; NULL: it takes none
	const char *help;  // of one not in this version: what it comes with
};

static int bad(const char *name, const char *value, const char *wants)
{
	CLEANUP_FREE char *what = ckpt_text("-o %s=%s", name, value);
	CLEANUP_FREE char *hint = ckpt_text("%s wants %s", name, wants);

	return ckpt_usage(what, hint, "not understood");
}

static int set_ro(struct ckpt_mount *m, const char *name, const char *value __attribute__((unused)))
{
	m->readonly = !strcmp(name, "ro");
	return 0;
}

static int set_flag(struct ckpt_mount *m, const char *name, const char *value __attribute__((unused)))
{
	if (!strcmp(name, "allow_other"))
		m->allow_other = true;
	else if (!strcmp(name, "no_passthrough"))
		m->no_passthrough = true;
	else if (!strcmp(name, "no_io_uring"))
		m->no_io_uring = true;
	else if (!strcmp(name, "show_latest"))
		m->settings.show_latest = true;
	else
		m->settings.show_staged = true;
	return 0;
}

static int set_uid(struct ckpt_mount *m, const char *name, const char *value)
{
	const struct passwd *user = getpwnam(value);
	char *end;
	unsigned long id = strtoul(value, &end, 10);

	if (!user && (!*value || *end || id > UINT32_MAX))
		return bad(name, value, "a user's name or number");
	m->uid = user ? user->pw_uid : (uid_t)id;
	if (!m->default_owner)
		m->gid = user ? user->pw_gid : getgid();
	m->default_owner = true;
	return 0;
}

static int set_gid(struct ckpt_mount *m, const char *name, const char *value)
{
	const struct group *group = getgrnam(value);
	char *end;
	unsigned long id = strtoul(value, &end, 10);

	if (!group && (!*value || *end || id > UINT32_MAX))
		return bad(name, value, "a group's name or number");
	m->gid = group ? group->gr_gid : (gid_t)id;
	if (!m->default_owner)
		m->uid = getuid();
	m->default_owner = true;
	return 0;
}

static int set_umask(struct ckpt_mount *m, const char *name, const char *value)
{
	char *end;
	unsigned long mask = strtoul(value, &end, 8);

	if (!*value || *end || mask > 0777)
		return bad(name, value, "an octal number up to 777");
	m->umask = (mode_t)mask;
	m->default_umask = true;
	return 0;
}

static int set_marker(struct ckpt_mount *m, const char *name, const char *value)
{
	if (ckpt_name_check(value, strlen(value)))
		return bad(name, value, "a file name");
	snprintf(m->settings.marker, sizeof(m->settings.marker), "%s", value);
	return 0;
}

static int set_duration(struct ckpt_mount *m, const char *name, const char *value)
{
	int64_t ns;

	if (ckpt_duration_parse(value, &ns))
		return bad(name, value, "a duration: 5s, 10m, 1h");
	if (!strcmp(name, "open_writers"))
		m->settings.open_writers_ns = ns;
	else if (!strcmp(name, "trash"))
		m->settings.trash_ns = ns;
	else if (!strcmp(name, "staging_ttl"))
		m->settings.staging_ttl_ns = ns;
	else if (!strcmp(name, "quiet"))
		m->settings.quiet_ns = ns;
	else
		m->settings.commit_timeout_ns = ns;
	return 0;
}

static int set_amend(struct ckpt_mount *m, const char *name, const char *value)
{
	static const char *const words[] = {
		[CKPT_AMEND_ADD] = "add", [CKPT_AMEND_DENY] = "deny", [CKPT_AMEND_REPLACE] = "replace"};

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (!strcmp(value, words[i])) {
			m->settings.amend = (enum ckpt_amend)i;
			return 0;
		}
	return bad(name, value, "add, deny or replace");
}

static int set_latest_by(struct ckpt_mount *m, const char *name, const char *value)
{
	bool step = !strcmp(value, "step");

	if (!step && strcmp(value, "commit"))
		return bad(name, value, "commit or step");
	m->settings.latest_by = step ? CKPT_LATEST_BY_STEP : CKPT_LATEST_BY_COMMIT;
	return 0;
}

static void set_text(char **slot, char *text)
{
	free(*slot);
	*slot = text;
}

static int set_steps_at(struct ckpt_mount *m, const char *name, const char *value)
{
	if (!*value)
		return bad(name, value, "patterns with ':' between them");
	set_text(&m->settings.steps_at, ckpt_text("%s", value));
	return 0;
}

static int set_work_dir(struct ckpt_mount *m, const char *name, const char *value)
{
	if (*value != '/')
		return bad(name, value, "an absolute path");
	set_text(&m->settings.work_dir, ckpt_text("%s", value));
	return 0;
}

static int set_log(struct ckpt_mount *m, const char *name, const char *value)
{
	if (!*value)
		return bad(name, value, "a file, syslog or -");
	if (strcmp(value, "syslog") && strcmp(value, "-"))
		m->log = ckpt_path_absolute(value);
	else
		m->log = ckpt_text("%s", value);
	return 0;
}

static int set_log_level(struct ckpt_mount *m, const char *name, const char *value)
{
	static const char *const levels[] = {"error", "warn", "info", "debug"};

	for (size_t i = 0; i < ARRAY_LEN(levels); i++)
		if (!strcmp(value, levels[i])) {
			m->log_level = levels[i];
			return 0;
		}
	return bad(name, value, "error, warn, info or debug");
}

// Options whose default is all that this version does: that word is accepted, the others come later.
static int set_default_only(struct ckpt_mount *m __attribute__((unused)), const char *name, const char *value)
{
	static const struct {
		const char *name, *value, *comes_with;
	} defaults[] = {
		{"profile", "auto", "the framework profiles"},
		{"amend", "add", "versions of steps"},
		{"durability", "local", "object stores"},
	};
	size_t i = 0;
	CLEANUP_FREE char *what = NULL, *hint = NULL;

	while (strcmp(defaults[i].name, name))
		i++;
	if (!strcmp(value, defaults[i].value))
		return 0;
	what = ckpt_text("-o %s=%s", name, value);
	hint = ckpt_text("leave it out; what this version does is %s=%s", name, defaults[i].value);
	return ckpt_usage(what, hint, "comes with %s", defaults[i].comes_with);
}

static const struct mount_option options[] = {
	{"ro", set_ro, NULL, "nothing can be changed; may be mounted beside a mount that writes"},
	{"rw", set_ro, NULL, "changes are allowed (default)"},
	{"allow_other", set_flag, NULL,
	 "other users get in, too; without root needs user_allow_other in /etc/fuse.conf"},
	{"uid", set_uid, "USER", "all files are shown as this user's, by name or number"},
	{"gid", set_gid, "GROUP", "all files are shown as this group's, by name or number"},
	{"umask", set_umask, "MODE", "these bits, octal, are taken from the modes that are shown"},
	{"steps_at", set_steps_at, "PATTERN[:...]",
	 "directories with such paths are steps, and no others (default: by the forms of their names)"},
	{"profile", set_default_only, "auto", "what frameworks do last completes a step; this version has no other"},
	{"marker", set_marker, "NAME", "closing a file of this name completes a step (default .finalize)"},
	{"amend", set_amend, "add|deny|replace",
	 "what a change of a committed step does: new files make a new version, and all else is given up unless it is "
	 "completed (default); nothing is allowed but deletion; or what stands still is the new version"},
	{"quiet", set_duration, "DURATION",
	 "a committed step that was changed and stands still so long is as before (default 60s)"},
	{"open_writers", set_duration, "DURATION",
	 "how long a commit waits for files that are open for writing (default 5s)"},
	{"commit_timeout", set_duration, "DURATION", "a commit that gets on no more fails after this (default 10m)"},
	{"durability", set_default_only, "local",
	 "a commit is done when it is on this disk; this version has no other"},
	{"show_staged", set_flag, NULL, "staged steps are listed, too"},
	{"show_latest", set_flag, NULL, "the link `latest` is listed, too"},
	{"latest_by", set_latest_by, "commit|step",
	 "`latest` is the last step that was committed (default), or the one with the highest number"},
	{"hot", NULL, "N", "sealing"},
	{"work_dir", set_work_dir, "DIR", "where the index is (default: in the store)"},
	{"work_limit", NULL, "SIZE", "quotas"},
	{"staging_ttl", set_duration, "DURATION",
	 "what was staged under a temporary name and stands still so long is dropped (default 7d)"},
	{"trash", set_duration, "DURATION", "how long deleted steps can be had back (default 7d)"},
	{"no_passthrough", set_flag, NULL, "files are read and written through the daemon, not by the kernel itself"},
	{"no_io_uring", set_flag, NULL, "requests come through /dev/fuse even where the kernel has FUSE over io_uring"},
	{"log", set_log, "FILE|syslog|-", "where the log goes (default: stderr with -f, else syslog)"},
	{"log_level", set_log_level, "LEVEL", "how much is logged: error, warn, info or debug (default warn)"},
	{"target_data_file_size", NULL, "SIZE", "sealing"},
	{"endpoint", NULL, "URL", "object stores"},
	{"region", NULL, "NAME", "object stores"},
	{"credentials_profile", NULL, "NAME", "object stores"},
	{"no_sign_request", NULL, NULL, "object stores"},
	{"requester_pays", NULL, NULL, "object stores"},
	{"allow_http", NULL, NULL, "object stores"},
	{"bwlimit", NULL, "SIZE", "object stores"},
	{"concurrent_gb", NULL, "N", "object stores"},
	{"poll", NULL, "DURATION", "object stores"},
};

const struct argp_option *ckpt_mount_options_help(void)
{
	static struct argp_option help[ARRAY_LEN(options) + 1];
	size_t n = 0;

	if (help[0].name)
		return help;
	for (const struct mount_option *o = options; o < options + ARRAY_LEN(options); o++)
		if (o->apply)
			help[n++] = (struct argp_option){
				.name = o->value ? ckpt_text("%s=%s", o->name, o->value) : o->name,
				.flags = OPTION_DOC | OPTION_NO_USAGE,
				.doc = o->help,
			};
	return help;
}

// What mount(8), fstab and systemd say to each other, or ask of every filesystem.
static const char *const passed_over[] = {
	"_netdev", "nofail",   "defaults",    "auto",  "noauto",     "user",     "nouser",   "users", "owner",  "group",
	"noatime", "relatime", "strictatime", "atime", "nodiratime", "diratime", "lazytime", "exec",  "noexec", "dev",
	"nodev",   "suid",     "nosuid",      "sync",  "async",      "dirsync",  "silent",   "loud",  NULL,
};

static bool is_passed_over(const char *name)
{
	for (const char *const *p = passed_over; *p; p++)
		if (!strcmp(name, *p))
			return true;
	return !strncmp(name, "x-", 2) || !strncmp(name, "X-", 2) || !strncmp(name, "comment", 7);
}

static int unknown(const char *name)
{
	const char *names[ARRAY_LEN(options) + 1], *nearest;
	CLEANUP_FREE char *what = ckpt_text("-o %s", name), *hint = NULL;

	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		names[i] = options[i].name;
	names[ARRAY_LEN(options)] = NULL;
	nearest = ckpt_nearest(name, names);
	hint = nearest ? ckpt_text("did you mean %s?", nearest) : ckpt_text("`ckptfs mount --help` has them all");
	return ckpt_usage(what, hint, "unknown option");
}

static int apply(struct ckpt_mount *m, const char *name, const char *value)
{
	CLEANUP_FREE char *what = ckpt_text("-o %s", name);

	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		if (strcmp(name, options[i].name))
			continue;
		if (!options[i].apply)
			return ckpt_usage(what, "leave it out", "comes with %s, in a later version", options[i].help);
		if (options[i].value && !value)
			return ckpt_usage(what, NULL, "needs a value: %s=%s", name, options[i].value);
		if (!options[i].value && value)
			return ckpt_usage(what, NULL, "takes no value");
		return options[i].apply(m, name, value);
	}
	return is_passed_over(name) ? 0 : unknown(name);
}

// Splits off the first option at a comma; "\," is a comma in a value.
static char *next_option(char **rest)
{
	char *word = *rest, *out = word, *p = word;

	for (; *p && *p != ','; *out++ = *p++)
		if (p[0] == '\\' && (p[1] == ',' || p[1] == '\\'))
			p++;
	*rest = *p ? p + 1 : p;
	*out = '\0';
	return word;
}

int ckpt_mount_options(const char *text, struct ckpt_mount *m)
{
	CLEANUP_FREE char *copy = ckpt_text("%s", text);
	char *rest = copy;

	while (*rest) {
		char *name = next_option(&rest), *value = strchr(name, '=');
		int rc;

		if (!*name)
			continue;
		if (value)
			*value++ = '\0';
		rc = apply(m, name, value);
		if (rc)
			return rc;
	}
	return 0;
}
