#include "tools/mount_options.h"

#include "core/base/nearest.h"
#include "core/base/util.h"
#include "core/step/locate.h"
#include "tools/config.h"
#include "tools/output.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>

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
	else if (!strcmp(name, "nonempty"))
		m->nonempty = true;
	else
		m->no_io_uring = true;
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

static int set_work_dir(struct ckpt_mount *m, const char *name, const char *value)
{
	if (*value != '/')
		return bad(name, value, "an absolute path");
	free(m->settings.work_dir);
	m->settings.work_dir = ckpt_text("%s", value);
	return 0;
}

static int set_on_commit(struct ckpt_mount *m, const char *name, const char *value)
{
	struct stat st;

	if (*value != '/' || stat(value, &st) || !S_ISREG(st.st_mode) || access(value, X_OK))
		return bad(name, value, "the absolute path of a program");
	m->on_commit = ckpt_text("%s", value);
	return 0;
}

static int set_log(struct ckpt_mount *m, const char *name, const char *value)
{
	if (!*value)
		return bad(name, value, "a file, syslog or -");
	if (strcmp(value, "syslog") && strcmp(value, "-"))
		m->log = ckpt_locate_absolute(value);
	else
		m->log = ckpt_text("%s", value);
	if (!m->log && errno == ENOMEM)
		ckpt_need(NULL);
	return m->log ? 0 : bad(name, value, "a file in a directory that is there");
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

// What the backend makes of it is said when it is opened.
static int set_remote(struct ckpt_mount *m, const char *name, const char *value)
{
	size_t count = 0;

	while (m->remote_options && m->remote_options[count])
		count++;
	m->remote_options = ckpt_need(reallocarray(m->remote_options, count + 2, sizeof(*m->remote_options)));
	m->remote_options[count] = value ? ckpt_text("%s=%s", name, value) : ckpt_text("%s", name);
	m->remote_options[count + 1] = NULL;
	return 0;
}

static const struct mount_option options[] = {
	{"ro", set_ro, NULL,
	 "nothing can be changed; several read-only mounts and one that writes can share a "
	 "store"},
	{"rw", set_ro, NULL, "changes are allowed (default)"},
	{"allow_other", set_flag, NULL,
	 "other users can use the mount, too; without root this needs user_allow_other in "
	 "/etc/fuse.conf"},
	{"nonempty", set_flag, NULL, "DIR may have entries; the mount hides them"},
	{"uid", set_uid, "USER", "all files belong to this user, by name or number"},
	{"gid", set_gid, "GROUP", "all files belong to this group, by name or number"},
	{"umask", set_umask, "MODE", "remove these bits (octal) from the modes that are shown"},
	{"work_dir", set_work_dir, "DIR",
	 "a store with a URL: the directory of this node's part of it, which has what is not pushed yet; else where "
	 "the index is (default: in the store)"},
	{"on_commit", set_on_commit, "PROGRAM",
	 "run this program after each commit, in the background and without a shell; its "
	 "environment has CKPT_STEP, CKPT_PATH and CKPT_METADATA (JSON)"},
	{"no_passthrough", set_flag, NULL, "the daemon reads and writes files, not the kernel itself"},
	{"no_io_uring", set_flag, NULL, "requests come through /dev/fuse even where the kernel has FUSE over io_uring"},
	{"log", set_log, "FILE|syslog|-", "where the log goes (default: stderr with -f, else syslog)"},
	{"log_level", set_log_level, "LEVEL",
	 "how much is logged: error, warn, info (commits, deletions, retention; the default) or debug"},
	{"endpoint", set_remote, "URL",
	 "S3: of a server that is not AWS's own (default: $AWS_ENDPOINT_URL_S3, $AWS_ENDPOINT_URL)"},
	{"region", set_remote, "NAME", "S3: of the bucket (default: $AWS_REGION, the profile, us-east-1)"},
	{"credentials_profile", set_remote, "NAME",
	 "S3: of ~/.aws/credentials and ~/.aws/config (default: $AWS_PROFILE)"},
	{"no_sign_request", set_remote, NULL, "S3: requests have no signature, for buckets that anybody may read"},
	{"requester_pays", set_remote, NULL, "S3: this account pays for its requests"},
	{"allow_http", set_remote, NULL, "S3: an endpoint without TLS is taken that is not on this machine"},
	{"bwlimit", set_remote, "SIZE", "S3: bytes a second, each way"},
	{"max_connections", set_remote, "N", "S3: at once (default 32)"},
	{"storage_class", set_remote, "NAME", "S3: of what is put"},
	{"sse", set_remote, "NAME", "S3: encryption at the server, AES256 or aws:kms"},
	{"sse_kms_key", set_remote, "ID", "S3: the key for it"},
	{"acl", set_remote, "NAME", "S3: the canned ACL of what is put"},
	{"concurrent_gb", NULL, "N", "object stores"},
	{"poll", NULL, "DURATION", "object stores"},
};

static struct argp_option help_line(const char *name, const char *value, const char *doc)
{
	return (struct argp_option){
		.name = value ? ckpt_text("%s=%s", name, value) : name,
		.flags = OPTION_DOC | OPTION_NO_USAGE,
		.doc = doc,
	};
}

// The mount's own, then the store's.
const struct argp_option *ckpt_mount_options_help(void)
{
	static struct argp_option help[ARRAY_LEN(options) + CKPT_SETTINGS_MAX + 1];
	const struct ckpt_setting *s;
	size_t n = 0;

	if (help[0].name)
		return help;
	for (const struct mount_option *o = options; o < options + ARRAY_LEN(options); o++)
		if (o->apply)
			help[n++] = help_line(o->name, o->value, o->help);
	for (size_t i = 0; (s = ckpt_setting_at(i)); i++)
		help[n++] =
			help_line(s->name, s->value,
				  s->value && s->initial ? ckpt_text("%s (default %s)", s->help, s->initial) : s->help);
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
	const char *names[ARRAY_LEN(options) + CKPT_SETTINGS_MAX + 1], *nearest;
	CLEANUP_FREE char *what = ckpt_text("-o %s", name), *hint = NULL;
	size_t n = 0;

	for (; n < ARRAY_LEN(options); n++)
		names[n] = options[n].name;
	for (size_t i = 0; ckpt_setting_at(i); i++)
		names[n++] = ckpt_setting_at(i)->name;
	names[n] = NULL;
	nearest = ckpt_nearest(name, names);
	hint = nearest ? ckpt_text("did you mean %s?", nearest) : ckpt_text("`ckptfs mount --help` lists them");
	return ckpt_usage(what, hint, "unknown option");
}

static int apply(struct ckpt_mount *m, const char *name, const char *value)
{
	CLEANUP_FREE char *what = ckpt_text("-o %s", name);
	CLEANUP_FREE char *whole = ckpt_text("-o %s%s%s", name, value ? "=" : "", value ? value : "");
	const struct ckpt_setting *setting = ckpt_setting_find(name);

	if (setting)
		return ckpt_config_give(whole, setting, value, &m->settings);
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
