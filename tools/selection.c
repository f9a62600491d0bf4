#include "tools/selection.h"

#include "core/base/util.h"
#include "core/find/find.h"
#include "tools/output.h"

#include <fnmatch.h>
#include <stdio.h>

static void add(struct ckpt_selection *s, struct ckpt_step *step)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->steps[i] == step)
			return;
	if (ckpt_grow((void **)&s->steps, &s->cap, s->count + 1, sizeof(struct ckpt_step *)))
		ckpt_need(NULL);
	s->steps[s->count++] = ckpt_step_ref(step);
}

static int by_commit(const void *a, const void *b)
{
	const struct ckpt_step *x = *(struct ckpt_step *const *)a, *y = *(struct ckpt_step *const *)b;

	return (x->born.sequence > y->born.sequence) - (x->born.sequence < y->born.sequence);
}

static void sort(struct ckpt_selection *s)
{
	if (s->count)
		qsort(s->steps, s->count, sizeof(struct ckpt_step *), by_commit);
}

// --- Forms of a word ----------------------------------------------------------------------------------------------------

struct form {
	const struct ckpt_listing *l;
	const char *word;
	size_t word_len;
	int64_t first, last;
	bool (*holds)(const struct form *f, struct ckpt_step *step, const char *name);
};

static bool is_in_range(const struct form *f, struct ckpt_step *step, const char *name __attribute__((unused)))
{
	LOCK_SCOPE(&step->lock);

	return step->version->is.number >= f->first && step->version->is.number <= f->last;
}

static bool matches(const struct form *f, struct ckpt_step *step __attribute__((unused)), const char *name)
{
	return !fnmatch(f->word, name, FNM_PATHNAME);
}

static bool is_in_folder(const struct form *f, struct ckpt_step *step __attribute__((unused)), const char *name)
{
	return !strncmp(name, f->word, f->word_len) && name[f->word_len] == '/';
}

// False: the word has none of these forms.
static bool form_of(const struct ckpt_listing *l, const char *word, struct form *ret_form)
{
	long long first, last;
	int used = 0;

	*ret_form = (struct form){.l = l, .word = word, .word_len = strlen(word)};
	while (ret_form->word_len && word[ret_form->word_len - 1] == '/')
		ret_form->word_len--;
	if (sscanf(word, "%lld..%lld%n", &first, &last, &used) == 2 && !word[used] && first >= 0) {
		ret_form->first = first;
		ret_form->last = last;
		ret_form->holds = is_in_range;
	} else if (strpbrk(word, "*?[")) {
		ret_form->holds = matches;
	} else if (ckpt_listing_is_folder(l, word) && ret_form->word_len) {
		ret_form->holds = is_in_folder;
	}
	return ret_form->holds;
}

static size_t add_all(const struct ckpt_listing *l, const struct form *f, struct ckpt_selection *s)
{
	struct ckpt_step **steps;
	size_t count, found = 0;

	if (ckpt_step_list(l->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		ckpt_need(NULL);
	for (size_t i = 0; i < count; i++) {
		CLEANUP_FREE char *name = f ? ckpt_listing_name(l, steps[i]->folder_id, steps[i]->name) : NULL;

		if (f && !f->holds(f, steps[i], name))
			continue;
		add(s, steps[i]);
		found++;
	}
	ckpt_step_list_free(steps, count);
	return found;
}

void ckpt_selection_all(const struct ckpt_listing *l, struct ckpt_selection *s)
{
	add_all(l, NULL, s);
	sort(s);
}

// --- Words --------------------------------------------------------------------------------------------------------------

// 1: it is the exact name of one. 0: not; else an exit status, as -status.
static int add_named(const struct ckpt_listing *l, const struct ckpt_operand *o, const char *word,
		     struct ckpt_selection *s)
{
	CLEANUP_FREE char *path = NULL;
	struct ckpt_step *step;
	int rc = 1;

	if (ckpt_listing_is_trash(word))
		return -ckpt_usage(word, "`ckptfs undelete` it first", "is in the trash");
	step = ckpt_listing_look(l, o, word, &path);
	if (!step)
		return 0;
	if (*path)
		rc = -ckpt_usage(word, "name the step alone", "this is a file in a step; the verb wants a whole step");
	else
		add(s, step);
	ckpt_step_unref(step);
	return rc;
}

static int add_word(const struct ckpt_listing *l, const struct ckpt_operand *o, const char *word,
		    struct ckpt_selection *s)
{
	CLEANUP_FREE char *path = NULL, *hint = NULL;
	struct ckpt_step *step = NULL;
	struct form f;
	int rc = add_named(l, o, word, s);

	if (rc)
		return MAX(-rc, 0);
	if (form_of(l, word, &f)) {
		hint = ckpt_text("`ckptfs ls %s` lists the steps", l->store->path);
		return add_all(l, &f, s) ? 0 : ckpt_fail(word, hint, "no step is meant by this");
	}
	rc = ckpt_listing_find(l, o, word, &step, &path); // it says why not
	ckpt_step_unref(step);
	return rc;
}

int ckpt_selection_add(const struct ckpt_listing *l, const struct ckpt_operand *o, const char *list,
		       struct ckpt_selection *s)
{
	CLEANUP_FREE char *words = ckpt_text("%s", list);
	char *rest = words, *word;
	int rc = add_named(l, o, list, s); // it may have a ',' in it

	if (rc < 0)
		return -rc;
	while (!rc && rest) {
		word = strsep(&rest, ",");
		rc = *word ? add_word(l, o, word, s) : ckpt_usage(list, "as in 1000,2000", "a name is missing");
		if (rc)
			return rc;
	}
	sort(s);
	return 0;
}

void ckpt_selection_done(struct ckpt_selection *s)
{
	for (size_t i = 0; i < s->count; i++)
		ckpt_step_unref(s->steps[i]);
	free(s->steps);
	*s = (struct ckpt_selection){0};
}
