#include "tools/operand.h"

#include "core/base/util.h"
#include "core/step/locate.h"
#include "core/step/store.h"
#include "tools/output.h"
#include "tools/remote_place.h"

#include <stdio.h>
#include <sys/stat.h>

char *ckpt_path_absolute(const char *path)
{
	char *absolute = ckpt_locate_absolute(path);

	return absolute || errno != ENOENT ? ckpt_need(absolute) : ckpt_text("%s", path); // there is nothing, then
}

// The path of a file:// URL, percent signs decoded; NULL: not a local one.
static char *file_url_path(const char *url)
{
	const char *p = url + strlen("file://");
	char *path, *out;

	if (!strncmp(p, "localhost/", 10))
		p += 9;
	if (*p != '/')
		return NULL;
	out = path = ckpt_need(malloc(strlen(p) + 1));
	while (*p) {
		unsigned byte;
		int used = 0;

		if (*p == '%' && sscanf(p, "%%%2x%n", &byte, &used) == 1 && used == 3 && byte) {
			*out++ = (char)byte;
			p += 3;
		} else {
			*out++ = *p++;
		}
	}
	*out = '\0';
	return path;
}

static bool is_url(const char *word)
{
	return strstr(word, "://") != NULL;
}

static int url_of_store(const char *url, char **ret_path)
{
	struct ckpt_remote_at at = {.url = url};
	int rc = ckpt_remote_at_options(&at);

	return rc ? rc : ckpt_remote_operand(&at, ret_path);
}

// A URL's directory; says why when it has none.
static int url_directory(const char *word, char **ret_path)
{
	CLEANUP_FREE char *path = NULL;

	if (ckpt_is_remote_url(word))
		return url_of_store(word, ret_path);
	if (!strncmp(word, "gs://", 5))
		return ckpt_fail(word, "use a directory for now", "object stores come in a later version");
	if (!strncmp(word, "file://", 7))
		path = file_url_path(word);
	if (!path)
		return ckpt_usage(word, "a STORE is a directory, file:///DIRECTORY or a mount point",
				  "not an address that ckptfs knows");
	*ret_path = ckpt_path_absolute(path);
	return 0;
}

int ckpt_operand_directory(const char *word, char **ret_path)
{
	if (is_url(word))
		return url_directory(word, ret_path);
	if (!*word)
		return ckpt_usage("STORE", NULL, "is empty");
	*ret_path = ckpt_path_absolute(word);
	return 0;
}

// --- Finding the store ----------------------------------------------------------------------------------------------

struct search {
	struct ckpt_mounts mounts;
	const struct ckpt_mounted *here; // the mount that the current directory is in
	char *here_inside;               // the current directory there
};

static void search_begin(struct search *s)
{
	CLEANUP_FREE char *cwd = getcwd(NULL, 0);
	const char *inside;

	*s = (struct search){0};
	if (ckpt_mounts_read(&s->mounts) == -ENOMEM)
		ckpt_need(NULL);
	if (cwd)
		s->here = ckpt_mounts_find(&s->mounts, cwd, &inside);
	if (s->here)
		s->here_inside = ckpt_need(ckpt_mounted_name(s->here, inside));
}

static void search_end(struct search *s)
{
	ckpt_mounts_done(&s->mounts);
	free(s->here_inside);
}

// Where the word leads as a path. In a mount, and below a store's directory, plain words are names of steps: only those that
// begin with '/' or '.' are paths.
static bool locate(const struct search *s, const char *word, struct ckpt_location *ret_location)
{
	CLEANUP_FREE char *path = ckpt_path_absolute(word);
	bool plain = *word != '/' && *word != '.';
	struct ckpt_location l;
	int rc = ckpt_locate(&s->mounts, path, &l);

	if (rc == -ENOMEM)
		ckpt_need(NULL);
	if (rc)
		return false;
	if (plain && (l.mount ? l.mount == s->here : *l.name != '\0')) {
		ckpt_location_done(&l);
		return false;
	}
	*ret_location = l;
	return true;
}

static void take_mount(const struct ckpt_mounted *m, struct ckpt_operand *o)
{
	o->store = ckpt_text("%s", m->store);
	o->mountpoint = ckpt_text("%s", m->mountpoint);
}

// STORE named outright. 0 taken, -ENOENT it is none, else an exit status.
static int take_named(const struct search *s, const char *word, struct ckpt_operand *o)
{
	struct ckpt_location l;

	o->in_bucket = ckpt_is_remote_url(word);
	if (is_url(word))
		return url_directory(word, &o->store);
	if (!locate(s, word, &l))
		return -ENOENT;
	o->store = TAKE_PTR(l.store);
	if (l.mount)
		o->mountpoint = ckpt_text("%s", l.mount->mountpoint);
	if (*l.name)
		o->steps[o->count++] = TAKE_PTR(l.name);
	ckpt_location_done(&l);
	return 0;
}

static int no_store(const char *word)
{
	CLEANUP_FREE char *hint = NULL;
	struct stat st;

	if (!word)
		return ckpt_usage("STORE", "name it, or set CKPTFS_STORE, or go into a mount", "none given");
	if (stat(word, &st))
		return ckpt_fail(word, "name the STORE first, or set CKPTFS_STORE, or go into a mount",
				 errno == ENOENT ? "no such store" : "%s", strerror(errno));
	if (S_ISDIR(st.st_mode) && access(word, R_OK | X_OK))
		return ckpt_fail_errno(
			word, "only its owner may look into a store; others see its mount (-o allow_other)", errno);
	hint = S_ISDIR(st.st_mode) ? ckpt_text("`ckptfs init %s` makes one of an empty directory", word) : NULL;
	return ckpt_fail(word, hint, "not a store, nor in a mount of one");
}

static int take_default(const struct search *s, const char *word, struct ckpt_operand *o)
{
	const char *env = getenv("CKPTFS_STORE");
	int rc;

	if (word && (*word == '/' || *word == '.'))
		return no_store(word);
	if (env && *env) {
		rc = take_named(s, env, o);
		return rc == -ENOENT ? ckpt_fail(env, "CKPTFS_STORE names it", "not a store, nor in a mount of one")
				     : rc;
	}
	if (!s->here)
		return no_store(word);
	take_mount(s->here, o);
	free(o->folder);
	o->folder = ckpt_text("%s", s->here_inside);
	return 0;
}

// Names lose what a shell's completion adds; paths into the same store become names.
static char *step_name(const struct search *s, const char *word, const struct ckpt_operand *o)
{
	struct ckpt_location l;
	char *name = NULL;
	size_t len;

	if ((*word == '/' || *word == '.') && locate(s, word, &l)) {
		if (!strcmp(l.store, o->store) && *l.name)
			name = TAKE_PTR(l.name);
		ckpt_location_done(&l);
	}
	if (name)
		return name;
	name = ckpt_text("%s", word);
	len = strlen(name);
	while (len > 1 && name[len - 1] == '/')
		name[--len] = '\0';
	return name;
}

int ckpt_operand_take(const struct ckpt_words *words, struct ckpt_operand *ret_operand)
{
	struct ckpt_operand o = {0};
	struct search s;
	size_t next = 1;
	int rc = -ENOENT;

	o.steps = ckpt_need(calloc(words->count + 2, sizeof(*o.steps)));
	o.folder = ckpt_text("%s", "");
	search_begin(&s);
	if (words->count)
		rc = take_named(&s, words->at[0], &o);
	if (rc == -ENOENT) {
		rc = take_default(&s, words->at[0], &o);
		next = 0;
	}
	if (!rc && ckpt_verb_store_options() && !o.in_bucket)
		rc = ckpt_usage("-o", "leave it out", "is of a STORE that is a URL");
	for (; !rc && next < words->count; next++)
		o.steps[o.count++] = step_name(&s, words->at[next], &o);
	search_end(&s);
	if (rc) {
		ckpt_operand_done(&o);
		return rc;
	}
	*ret_operand = o;
	return 0;
}

static int take_alone(const char *word, struct ckpt_operand *o)
{
	struct search s;
	int rc;

	*o = (struct ckpt_operand){0};
	o->steps = ckpt_need(calloc(1, sizeof(*o->steps)));
	o->folder = ckpt_text("%s", "");
	search_begin(&s);
	rc = take_named(&s, word, o);
	search_end(&s);
	return rc;
}

int ckpt_operand_source(const char *word, struct ckpt_operand *ret_operand)
{
	struct ckpt_operand o;
	int rc = take_alone(word, &o);

	if (rc) {
		ckpt_operand_done(&o);
		return rc == -ENOENT ? no_store(word) : rc;
	}
	*ret_operand = o;
	return 0;
}

// Below a store, or in a mount, it would be a store in a store.
static int check_place(const char *path)
{
	struct ckpt_location l;
	struct ckpt_mounts mounts;
	int rc = ckpt_mounts_read(&mounts);

	if (rc != -ENOMEM)
		rc = ckpt_locate(&mounts, path, &l);
	if (!rc) {
		ckpt_fail(path, "give another directory", "is in the store %s", l.store);
		ckpt_location_done(&l);
	}
	ckpt_mounts_done(&mounts);
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	return !rc;
}

static int make_directory(const char *word, bool make, char **ret_path)
{
	CLEANUP_FREE char *path = NULL;
	int rc = ckpt_operand_directory(word, &path);

	if (!rc)
		rc = check_place(path);
	if (rc || !make)
		return rc;
	rc = ckpt_store_init_with(path, NULL, NULL);
	if (rc == -ENOTEMPTY)
		return ckpt_fail(word, "name a store, or a directory that is absent or empty",
				 "has files and is not a store");
	if (rc)
		return ckpt_fail_errno(word, rc == -ENOENT ? "make the directory above it first" : NULL, rc);
	*ret_path = TAKE_PTR(path);
	return 0;
}

int ckpt_operand_target(const char *word, bool make, struct ckpt_operand *ret_operand)
{
	struct ckpt_operand o = {0};
	int rc;

	if (ckpt_is_remote_url(word)) {
		o.in_bucket = true;
		rc = ckpt_remote_target(word, make, &o.store);
	} else {
		rc = take_alone(word, &o);
		if (!rc && is_url(word) && !ckpt_store_probe(o.store)) {
			free(TAKE_PTR(o.store));
			rc = -ENOENT;
		}
		if (rc == -ENOENT)
			rc = make_directory(word, make, &o.store);
	}
	if (!rc && o.count)
		rc = ckpt_usage(word, "name the STORE alone", "is a place in a store, where a STORE is wanted");
	if (rc) {
		ckpt_operand_done(&o);
		return rc;
	}
	*ret_operand = o;
	return 0;
}

char *ckpt_operand_new_name(const struct ckpt_operand *operand, size_t i, const char *word)
{
	bool from_here = *operand->folder && *word != '/' && *word != '.';

	return from_here ? ckpt_text("%s/%s", operand->folder, operand->steps[i]) : ckpt_text("%s", operand->steps[i]);
}

void ckpt_operand_done(struct ckpt_operand *operand)
{
	for (size_t i = 0; i < operand->count; i++)
		free(operand->steps[i]);
	free(operand->steps);
	free(operand->store);
	free(operand->mountpoint);
	free(operand->folder);
	*operand = (struct ckpt_operand){0};
}
