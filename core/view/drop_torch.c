// torch.save() as a zip (core/array/catalog_torch.c has its form). Its pickle loses the items of dictionaries whose values are dropped arrays;
// opcodes of all other values stay. Storages that only dropped arrays had are left out; all other members keep their names, bytes and order.
//
// .format_version is left out, too: with it torch takes the storages for ones that lie as its own writer puts them, in the order in which they are
// loaded, and computes their places (torch/serialization.py, _get_offset). Without it, it looks for them.
//
// The sums of members are those that the file had: damage stays visible.
#include "core/view/drop.h"

#include "core/array/catalog_torch.h"
#include "core/array/pickle_edit.h"
#include "core/array/write_zip.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdarg.h>
#include <stdio.h>

#define RUN_BYTES ((size_t)4 << 20)
#define ALIGN_MAX (32u << 10)
#define LARGER_MAX (1u << 20)
#define PICKLE "/data.pkl"

struct member {
	struct ckpt_zip_member m;
	uint64_t data;
};

struct key {
	const char *text;
	size_t len;
};

struct keys {
	struct key *at;
	size_t count, cap;
};

struct torch {
	const struct ckpt_drop *how;
	const struct ckpt_source *from;
	int to;
	char **why;
	struct member *members;
	size_t count, cap;
	char *names; // of members
	size_t names_len;
	const struct member *pickle;
	size_t top_len; // of TOP in names
	struct ckpt_pickle *was, *now;
	uint8_t *cut, *kept; // a bit for each item of was
	struct ckpt_buffer edited;
	struct keys before, after; // of storages, sorted
	size_t align;
	uint64_t at;
	struct ckpt_buffer directory;
	size_t written;
};

__attribute__((format(printf, 2, 3))) static int refuse(struct torch *t, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (!*t->why && vasprintf(t->why, format, args) < 0)
		*t->why = NULL;
	va_end(args);
	return -EBADMSG;
}

// --- The members ----------------------------------------------------------------------------------------------------------

static int take_member(void *arg, const struct ckpt_zip_member *m)
{
	struct torch *t = arg;
	struct member *to;

	if (ckpt_grow((void **)&t->members, &t->cap, t->count + 1, sizeof(*to)))
		return -ENOMEM;
	to = &t->members[t->count++];
	to->m = *m;
	to->m.name = memcpy(t->names + t->names_len, m->name, m->name_len);
	t->names_len += m->name_len;
	return m->stored ? ckpt_zip_data(t->from, &to->m, &to->data) : -EINVAL;
}

// The part of a member's name behind TOP; "": it is not below it.
static struct key name_in(const struct torch *t, const struct member *m)
{
	if (m->m.name_len < t->top_len || memcmp(m->m.name, t->pickle->m.name, t->top_len))
		return (struct key){"", 0};
	return (struct key){m->m.name + t->top_len, m->m.name_len - t->top_len};
}

static bool is_text(struct key k, const char *text)
{
	return k.len == strlen(text) && !memcmp(k.text, text, k.len);
}

static int find_pickle(struct torch *t)
{
	const size_t len = sizeof(PICKLE) - 1;

	for (size_t i = 0; i < t->count && !t->pickle; i++) {
		const struct ckpt_zip_member *m = &t->members[i].m;

		if (m->name_len > len && !memcmp(m->name + m->name_len - len, PICKLE, len)) {
			t->pickle = &t->members[i];
			t->top_len = m->name_len - len;
		}
	}
	return t->pickle ? 0 : -EINVAL;
}

static bool is_storage(const struct torch *t, const struct member *m, struct key *ret_key)
{
	static const char data[] = "/data/";
	struct key name = name_in(t, m);

	if (name.len < sizeof(data) - 1 || memcmp(name.text, data, sizeof(data) - 1))
		return false;
	*ret_key = (struct key){name.text + sizeof(data) - 1, name.len - (sizeof(data) - 1)};
	return true;
}

static bool are_aligned(const struct torch *t, size_t align)
{
	struct key key;

	for (size_t i = 0; i < t->count; i++)
		if (is_storage(t, &t->members[i], &key) && t->members[i].data % align)
			return false;
	return true;
}

// A member has the alignment of storages as text; 64 where it does not say so, or they are not.
static int take_align(struct torch *t)
{
	char text[8] = "";
	int rc = 0;

	t->align = CKPT_ZIP_ALIGN;
	for (size_t i = 0; i < t->count && !rc; i++) {
		const struct member *m = &t->members[i];
		unsigned long align;

		if (!is_text(name_in(t, m), "/.storage_alignment") || m->m.bytes >= sizeof(text))
			continue;
		rc = ckpt_source_read(t->from, m->data, text, (size_t)m->m.bytes);
		align = strtoul(text, NULL, 10);
		if (align > CKPT_ZIP_ALIGN && align <= ALIGN_MAX && !(align & (align - 1)) && are_aligned(t, align))
			t->align = align;
	}
	return rc;
}

// Members that lie in each other would make a file of any size.
static int check_places(const struct torch *t)
{
	uint64_t left = t->from->bytes;

	for (size_t i = 0; i < t->count; i++) {
		const struct member *m = &t->members[i];

		if (m->data > t->from->bytes || m->m.bytes > t->from->bytes - m->data || m->m.bytes > left)
			return -EINVAL;
		left -= m->m.bytes;
	}
	return 0;
}

static int take_members(struct torch *t)
{
	struct ckpt_zip zip;
	int rc = ckpt_zip_find(t->from, &zip);

	if (rc == -EINVAL)
		return refuse(t, "torch saved it in its form before version 1.6, which is not rewritten here");
	if (!rc && zip.directory_bytes > CKPT_ZIP_DIRECTORY_MAX)
		rc = -EINVAL;
	if (!rc) {
		t->names = malloc((size_t)zip.directory_bytes + 1);
		rc = t->names ? ckpt_zip_each(t->from, &zip, take_member, t) : -ENOMEM;
	}
	if (!rc)
		rc = check_places(t);
	if (!rc)
		rc = find_pickle(t);
	if (!rc)
		rc = take_align(t);
	return rc == -EINVAL ? refuse(t, "a member of its zip is compressed, or breaks a rule") : rc;
}

// --- The pickle -----------------------------------------------------------------------------------------------------------

static bool has_bit(const uint8_t *bits, ckpt_item item)
{
	return bits[item / 8] & 1u << item % 8;
}

static int see(void *arg, const struct ckpt_torch *r)
{
	struct torch *t = arg;
	int len = (int)r->name_len;
	bool drops;

	r->name[r->name_len] = '\0';
	drops = t->how->drops(t->how->arg, r->name);
	if (drops && r->objects)
		return refuse(t, "%.*s is an attribute of an object, whose class may need it", len, r->name);
	if (drops && !r->key)
		return refuse(t, "%.*s is an item of a list or a tuple, and others would get its place", len, r->name);
	if (!r->key)
		return 0;
	(drops ? t->cut : t->kept)[r->key / 8] |= (uint8_t)(1u << r->key % 8);
	if (has_bit(t->cut, r->key) && has_bit(t->kept, r->key))
		return refuse(t, "%.*s stands in a dictionary that has two names, of which only one is dropped", len,
			      r->name);
	return 0;
}

static int edit(struct torch *t)
{
	uint64_t begin = t->pickle->data, end = begin + t->pickle->m.bytes;
	struct ckpt_pickle_fault fault;
	struct ckpt_source edited;
	bool same = false;
	int rc = ckpt_pickle_read_places(t->from, begin, end, &t->was, &fault);

	if (rc)
		return rc == -EINVAL ? refuse(t, "its pickle: %s", fault.what) : rc;
	t->cut = ckpt_calloc(ckpt_pickle_items(t->was) / 8 + 1, 1);
	t->kept = ckpt_calloc(ckpt_pickle_items(t->was) / 8 + 1, 1);
	rc = t->cut && t->kept ? ckpt_torch_each(t->was, see, t) : -ENOMEM;
	if (!rc)
		rc = ckpt_pickle_edit(t->from, begin, end, t->was, t->cut, &t->edited);
	if (!rc) {
		edited = ckpt_pickle_edited(&t->edited);
		rc = ckpt_pickle_read(&edited, 0, edited.bytes, &t->now, NULL, &fault);
	}
	if (!rc)
		rc = ckpt_pickle_compare(t->was, t->cut, t->now, &same);
	if (rc == -EINVAL || (!rc && !same))
		return refuse(t, "a dictionary that loses an array stands in two places of its pickle, or what is left "
				 "cannot be written as it was");
	return rc;
}

// --- Storages -------------------------------------------------------------------------------------------------------------

static int by_key(const void *one, const void *other)
{
	const struct key *a = one, *b = other;
	int order = memcmp(a->text, b->text, MIN(a->len, b->len));

	return order ? order : (a->len > b->len) - (a->len < b->len);
}

static bool has_key(const struct keys *k, struct key key)
{
	return k->count && bsearch(&key, k->at, k->count, sizeof(key), by_key);
}

// Of all storages that the pickle names, in whatever value: ("storage", CLASS, KEY, ...).
static int take_keys(struct torch *t, const struct ckpt_pickle *p, struct keys *ret)
{
	for (ckpt_value v = 0; v < ckpt_pickle_count(p); v++) {
		ckpt_value id = ckpt_value_id(p, v);
		struct key key;

		if (ckpt_value_kind(p, v) != CKPT_VALUE_PERSISTENT)
			continue;
		key.text = ckpt_value_text(p, ckpt_value_at(p, id, 2), &key.len);
		if (!key.text || !ckpt_value_is_text(p, ckpt_value_at(p, id, 0), "storage"))
			return refuse(t, "a storage of it is not what torch writes");
		if (ckpt_grow((void **)&ret->at, &ret->cap, ret->count + 1, sizeof(key)))
			return -ENOMEM;
		ret->at[ret->count++] = key;
	}
	if (ret->count)
		qsort(ret->at, ret->count, sizeof(*ret->at), by_key);
	return 0;
}

static bool is_left_out(const struct torch *t, const struct member *m)
{
	struct key key;

	return is_storage(t, m, &key) && has_key(&t->before, key) && !has_key(&t->after, key);
}

// --- The new file ---------------------------------------------------------------------------------------------------------

static int put(struct torch *t, const void *bytes, size_t len)
{
	ssize_t n = ckpt_sys.pwrite(t->to, bytes, len, (off_t)t->at);

	t->at += len;
	return n < 0 ? (int)n : 0;
}

static int put_buffer(struct torch *t, struct ckpt_buffer *b)
{
	int rc = b->rc ? b->rc : put(t, b->at, b->len);

	ckpt_buffer_done(b);
	return rc;
}

static int copy(struct torch *t, uint64_t from, uint64_t bytes, void *run)
{
	int rc = 0;

	while (bytes && !rc) {
		size_t len = (size_t)MIN(bytes, (uint64_t)RUN_BYTES);

		rc = t->how->stop && *t->how->stop ? -EINTR : ckpt_source_read(t->from, from, run, len);
		if (!rc)
			rc = put(t, run, len);
		from += len;
		bytes -= len;
	}
	return rc;
}

static int write_member(struct torch *t, const struct member *m, void *run)
{
	struct ckpt_zip_record r = {m->m.name, m->m.name_len, t->at, m->m.bytes, m->m.crc};
	struct ckpt_buffer local = {0};
	int rc;

	if (t->at > 2 * t->from->bytes + LARGER_MAX)
		return refuse(t, "its zip would be far larger than it was");
	if (m == t->pickle) {
		r.bytes = t->edited.len;
		r.crc = ckpt_zip_crc(t->edited.at, t->edited.len);
	}
	ckpt_zip_put_local(&local, &r, t->align);
	rc = put_buffer(t, &local);
	if (!rc)
		rc = m == t->pickle ? put(t, t->edited.at, t->edited.len) : copy(t, m->data, m->m.bytes, run);
	ckpt_zip_put_entry(&t->directory, &r);
	t->written++;
	return rc;
}

static int write_zip(struct torch *t)
{
	CLEANUP_FREE void *run = malloc(RUN_BYTES);
	struct ckpt_buffer end = {0};
	uint64_t directory;
	int rc = run ? 0 : -ENOMEM;

	for (size_t i = 0; i < t->count && !rc; i++) {
		const struct member *m = &t->members[i];

		if (!is_left_out(t, m) && !is_text(name_in(t, m), "/.format_version"))
			rc = write_member(t, m, run);
	}
	directory = t->at;
	ckpt_zip_put_end(&end, t->written, directory, t->directory.len);
	if (!rc)
		rc = put_buffer(t, &t->directory);
	if (!rc)
		rc = put_buffer(t, &end);
	ckpt_buffer_done(&end);
	return rc;
}

int ckpt_drop_torch(const struct ckpt_drop *how, const struct ckpt_source *from, int to, char **ret_why)
{
	struct torch t = {.how = how, .from = from, .to = to, .why = ret_why};
	int rc = take_members(&t);

	if (!rc)
		rc = edit(&t);
	if (!rc)
		rc = take_keys(&t, t.was, &t.before);
	if (!rc)
		rc = take_keys(&t, t.now, &t.after);
	if (!rc)
		rc = write_zip(&t);
	ckpt_buffer_done(&t.edited);
	ckpt_buffer_done(&t.directory);
	ckpt_pickle_free(t.was);
	ckpt_pickle_free(t.now);
	free(t.members);
	free(t.names);
	free(t.cut);
	free(t.kept);
	free(t.before.at);
	free(t.after.at);
	return rc == -EINVAL ? -EBADMSG : rc;
}
