#include "core/array/findings.h"

#include "core/array/array_digest.h"
#include "core/array/array_format.h"
#include "core/array/cover.h"
#include "core/array/gather.h"
#include "core/array/number.h"
#include "core/array/scan.h"
#include "core/base/util.h"

#include <inttypes.h>
#include <stdarg.h>
#include <ctype.h>
#include <stdio.h>

#define ELEMENTS_AT_ONCE (64u << 10)
#define ELEMENTS_FREE (1u << 20) // that are read whatever is stored of them
#define ELEMENTS_OF_BYTE 64u     // that are read beyond these for each byte that is stored

const char *ckpt_array_finding_word(enum ckpt_array_finding_kind kind)
{
	static const char *const words[CKPT_FINDING_KINDS] = {
		[CKPT_FINDING_BROKEN] = "broken",   [CKPT_FINDING_MISSING] = "missing",
		[CKPT_FINDING_EXTRA] = "extra",     [CKPT_FINDING_GAP] = "gap",
		[CKPT_FINDING_DOUBLED] = "doubled", [CKPT_FINDING_UNREADABLE] = "unreadable",
		[CKPT_FINDING_DAMAGED] = "damaged", [CKPT_FINDING_NAN] = "nan",
		[CKPT_FINDING_INF] = "inf",         [CKPT_FINDING_ZERO] = "zero",
		[CKPT_FINDING_SAME] = "same",       [CKPT_FINDING_SHAPE] = "shape",
		[CKPT_FINDING_DTYPE] = "dtype",     [CKPT_FINDING_GONE] = "gone",
		[CKPT_FINDING_RANKS] = "ranks",
	};

	return words[kind];
}

bool ckpt_array_finding_is_trouble(enum ckpt_array_finding_kind kind)
{
	return kind == CKPT_FINDING_BROKEN || kind == CKPT_FINDING_MISSING || kind == CKPT_FINDING_GAP ||
	       kind == CKPT_FINDING_DAMAGED || kind == CKPT_FINDING_NAN;
}

bool ckpt_findings_healthy(const struct ckpt_findings *f)
{
	for (int kind = 0; kind < CKPT_FINDING_KINDS; kind++)
		if (f->counts[kind] && ckpt_array_finding_is_trouble(kind))
			return false;
	return true;
}

static void done(struct ckpt_array_finding *finding)
{
	free(finding->file);
	free(finding->tree);
	free(finding->name);
	free(finding->detail);
}

void ckpt_findings_done(struct ckpt_findings *f)
{
	for (size_t i = 0; i < f->count; i++)
		done(&f->at[i]);
	free(f->at);
	*f = (struct ckpt_findings){0};
}

// --- Adding -----------------------------------------------------------------------------------------------------------------

// Of an array or a file. 0, -ENOMEM.
static int add(struct ckpt_findings *f, enum ckpt_array_finding_kind kind, const struct ckpt_catalog_array *a,
	       const char *file, const char *format, ...) __attribute__((format(printf, 5, 6)));
static int add(struct ckpt_findings *f, enum ckpt_array_finding_kind kind, const struct ckpt_catalog_array *a,
	       const char *file, const char *format, ...)
{
	struct ckpt_array_finding made = {.kind = kind};
	va_list args;
	int len;

	f->counts[kind]++;
	if (f->count == CKPT_FINDINGS_MAX)
		return 0;
	va_start(args, format);
	len = vasprintf(&made.detail, format, args);
	va_end(args);
	if (len < 0)
		return -ENOMEM;
	if (a) {
		made.tree = strdup(a->tree);
		made.name = strdup(a->name);
	} else {
		made.file = strdup(file);
	}
	if ((a ? !made.tree || !made.name : !made.file) ||
	    ckpt_grow((void **)&f->at, &f->cap, f->count + 1, sizeof(*f->at))) {
		done(&made);
		return -ENOMEM;
	}
	f->at[f->count++] = made;
	return 0;
}

// --- Headers ----------------------------------------------------------------------------------------------------------------

// The files of a checkpoint by path.
struct file {
	char *path;
	uint64_t bytes;
};

struct files {
	struct file *at;
	size_t count, cap;
};

static int take_file(void *arg, const char *path, uint64_t bytes)
{
	struct files *s = arg;
	char *copy = strdup(path);

	if (!copy || ckpt_grow((void **)&s->at, &s->cap, s->count + 1, sizeof(*s->at))) {
		free(copy);
		return -ENOMEM;
	}
	s->at[s->count++] = (struct file){copy, bytes};
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->path, ((const struct file *)b)->path);
}

static int take_files(struct files *s, const struct ckpt_findings_side *side)
{
	int rc = side->files->each(side->files->arg, "", take_file, s);

	if (!rc && s->count)
		qsort(s->at, s->count, sizeof(*s->at), by_path);
	return rc;
}

static void files_done(struct files *s)
{
	for (size_t i = 0; i < s->count; i++)
		free(s->at[i].path);
	free(s->at);
}

static int find_faults(struct ckpt_findings *f, const struct ckpt_catalog *c)
{
	int rc = 0;

	for (size_t i = 0; i < ckpt_catalog_faults(c) && !rc; i++) {
		struct ckpt_catalog_fault fault;

		ckpt_catalog_fault(c, i, &fault);
		if (!strcmp(fault.field, "Missing"))
			rc = add(f, CKPT_FINDING_MISSING, NULL, fault.file, "%s", fault.reason);
		else if (!strcmp(fault.field, "Extra"))
			rc = add(f, CKPT_FINDING_EXTRA, NULL, fault.file, "%s", fault.reason);
		else
			rc = add(f, CKPT_FINDING_BROKEN, NULL, fault.file, "%s: %s", fault.field, fault.reason);
	}
	return rc;
}

// One finding for each array: the first piece that is not there.
static int find_files_of(struct ckpt_findings *f, const struct files *s, const struct ckpt_catalog *c, size_t i,
			 const struct ckpt_catalog_array *a)
{
	const struct file *last = NULL;

	for (size_t k = 0; k < a->pieces; k++) {
		struct ckpt_piece p;
		uint64_t end;

		ckpt_catalog_piece(c, i, k, &p);
		if (p.data)
			continue;
		if (!last || strcmp(last->path, p.file)) {
			const struct file key = {.path = (char *)p.file};

			last = s->count ? bsearch(&key, s->at, s->count, sizeof(key), by_path) : NULL;
		}
		if (!last)
			return add(f, CKPT_FINDING_GAP, a, NULL, "its file %s is not there", p.file);
		if (__builtin_add_overflow(p.offset, p.bytes, &end) || end > last->bytes)
			return add(f, CKPT_FINDING_GAP, a, NULL, "%s ends before it", p.file);
	}
	return 0;
}

static int cover_of(const struct ckpt_catalog *c, size_t i, const struct ckpt_catalog_array *a,
		    struct ckpt_covered *ret)
{
	static const uint64_t zeros[CKPT_ARRAY_DIMS_MAX];
	const struct ckpt_box region = {zeros, a->shape};
	CLEANUP_FREE struct ckpt_box *boxes = ckpt_calloc(a->pieces + 1, sizeof(*boxes));

	if (!boxes)
		return -ENOMEM;
	for (size_t k = 0; k < a->pieces; k++) {
		struct ckpt_piece p;

		ckpt_catalog_piece(c, i, k, &p);
		boxes[k] = (struct ckpt_box){p.start, p.extent};
	}
	return ckpt_cover(boxes, a->pieces, a->ndim, &region, ret);
}

static int find_gaps(struct ckpt_findings *f, const struct ckpt_catalog *c, size_t i,
		     const struct ckpt_catalog_array *a)
{
	struct ckpt_covered covered;
	uint64_t elements;
	int rc;

	if (!ckpt_array_elements(a->shape, a->ndim, &elements))
		return 0;
	rc = cover_of(c, i, a, &covered);
	if (rc == -E2BIG)
		return add(f, CKPT_FINDING_UNREADABLE, a, NULL, "its pieces overlap too much to be compared");
	if (!rc && covered.missing && !a->fill)
		rc = add(f, CKPT_FINDING_GAP, a, NULL, "%" PRIu64 " of %" PRIu64 " elements are in no file",
			 covered.missing, elements);
	if (!rc && covered.doubled)
		rc = add(f, CKPT_FINDING_DOUBLED, a, NULL, "%" PRIu64 " of %" PRIu64 " elements are in several places",
			 covered.doubled, elements);
	return rc;
}

int ckpt_findings_of_headers(struct ckpt_findings *f, const struct ckpt_findings_side *now)
{
	const struct ckpt_catalog *c = now->catalog;
	struct files s = {0};
	int rc = take_files(&s, now);

	if (!rc)
		rc = find_faults(f, c);
	for (size_t i = 0; i < ckpt_catalog_count(c) && !rc; i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(c, i, &a);
		rc = ckpt_catalog_goes_on(c, 1 + a.pieces);
		if (rc)
			break;
		if (ckpt_catalog_is_object(&a))
			continue;
		if (a.why) {
			rc = add(f, ckpt_catalog_is_missing(&a) ? CKPT_FINDING_GAP : CKPT_FINDING_UNREADABLE, &a, NULL,
				 "%s", a.why);
			continue;
		}
		rc = find_files_of(f, &s, c, i, &a);
		if (!rc)
			rc = find_gaps(f, c, i, &a);
	}
	files_done(&s);
	return rc;
}

// --- Names in the step before -------------------------------------------------------------------------------------------------

// The arrays of a catalog by TREE and NAME, and the trees with one number in place of another.
struct names {
	const struct ckpt_catalog *c;
	uint32_t *order;
	int64_t from, to; // numbers in trees; -1: as they are
};

struct key {
	const char *tree, *name;
};

static int compare(const struct ckpt_catalog *c, const struct key *key, uint32_t at)
{
	struct ckpt_catalog_array a;
	int order;

	ckpt_catalog_get(c, at, &a);
	order = strcmp(key->tree, a.tree);
	return order ? order : strcmp(key->name, a.name);
}

static int by_key(const void *one, const void *other, void *arg)
{
	const struct ckpt_catalog *c = arg;
	struct ckpt_catalog_array a;

	ckpt_catalog_get(c, *(const uint32_t *)one, &a);
	return compare(c, &(struct key){a.tree, a.name}, *(const uint32_t *)other);
}

static int names_of(const struct ckpt_findings_side *of, const struct ckpt_findings_side *asked, struct names *ret)
{
	size_t count = ckpt_catalog_count(of->catalog);

	*ret = (struct names){of->catalog, ckpt_calloc(count + 1, sizeof(uint32_t)), asked->number, of->number};
	if (!ret->order)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		ret->order[i] = (uint32_t)i;
	if (count)
		qsort_r(ret->order, count, sizeof(uint32_t), by_key, (void *)of->catalog);
	return 0;
}

char *ckpt_findings_tree(const char *text, int64_t from, int64_t to)
{
	char wanted[24], other[24], *made = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&made, &len);

	if (!out)
		return NULL;
	snprintf(wanted, sizeof(wanted), "%" PRId64, from);
	snprintf(other, sizeof(other), "%" PRId64, to);
	while (*text) {
		size_t digits = strspn(text, "0123456789");

		if (digits && from >= 0 && to >= 0 && digits == strlen(wanted) && !memcmp(text, wanted, digits)) {
			fputs(other, out);
		} else {
			digits = MAX(digits, (size_t)1);
			fwrite(text, 1, digits, out);
		}
		text += digits;
	}
	if (fclose(out)) {
		free(made);
		return NULL;
	}
	return made;
}

static int find_key(const struct names *n, const struct key *key, size_t *ret_at)
{
	size_t low = 0, high = ckpt_catalog_count(n->c);

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = compare(n->c, key, n->order[middle]);

		if (!order) {
			*ret_at = n->order[middle];
			return 0;
		}
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return -ENOENT;
}

// The same array there. A tree of the same name is the same tree: "rank-0-of-2" of step 2 has the number of a world. 0; -ENOENT, -ENOMEM.
static int find_there(const struct names *n, const struct ckpt_catalog_array *a, size_t *ret_at)
{
	CLEANUP_FREE char *tree = NULL;
	int rc = find_key(n, &(struct key){a->tree, a->name}, ret_at);

	if (rc != -ENOENT)
		return rc;
	tree = ckpt_findings_tree(a->tree, n->from, n->to);
	return tree ? find_key(n, &(struct key){tree, a->name}, ret_at) : -ENOMEM;
}

// --- Since the step before ----------------------------------------------------------------------------------------------------

static char *shape_text(const struct ckpt_catalog_array *a)
{
	char *made = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&made, &len);

	if (!out)
		return NULL;
	for (unsigned i = 0; i < a->ndim; i++)
		fprintf(out, "%s%" PRIu64, i ? ", " : "[", a->shape[i]);
	fputs(a->ndim ? "]" : "[]", out);
	if (fclose(out)) {
		free(made);
		return NULL;
	}
	return made;
}

static bool same_shape(const struct ckpt_catalog_array *a, const struct ckpt_catalog_array *b)
{
	return a->ndim == b->ndim && !memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape));
}

static int compare_kinds(struct ckpt_findings *f, const struct ckpt_catalog_array *now,
			 const struct ckpt_catalog_array *before)
{
	int rc = 0;

	if (now->dtype != before->dtype)
		rc = add(f, CKPT_FINDING_DTYPE, now, NULL, "%s, and %s in the step before", ckpt_dtype_name(now->dtype),
			 ckpt_dtype_name(before->dtype));
	if (!rc && !same_shape(now, before)) {
		CLEANUP_FREE char *is = shape_text(now);
		CLEANUP_FREE char *was = shape_text(before);

		rc = is && was ? add(f, CKPT_FINDING_SHAPE, now, NULL, "%s, and %s in the step before", is, was)
			       : -ENOMEM;
	}
	return rc;
}

// Ranks by the names that frameworks give to their files: the number behind one of these.
static bool rank_of(const char *path, unsigned *ret_rank)
{
	static const char *const before[] = {"zero_pp_rank_", "mp_rank_", "ocdbt.process_", "random_states_", "__"};
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;

	for (size_t i = 0; i < ARRAY_LEN(before); i++) {
		// ocdbt.process_N is a folder
		const char *at = strstr(i == 2 ? path : base, before[i]);
		char *end;
		unsigned long rank;

		if (!at || (i == 4 && (at != base || !strstr(base, ".distcp"))))
			continue;
		at += strlen(before[i]);
		if (*at < '0' || *at > '9')
			continue;
		rank = strtoul(at, &end, 10);
		// Orbax's partial saves have a number in hexadecimal there, another one each time.
		if (rank < 1u << 20 && !isalnum((unsigned char)*end)) {
			*ret_rank = (unsigned)rank;
			return true;
		}
	}
	return false;
}

static int take_rank(void *arg, const char *path, uint64_t bytes)
{
	unsigned *ranks = arg, rank;

	(void)bytes;
	if (rank_of(path, &rank))
		*ranks = MAX(*ranks, rank + 1);
	return 0;
}

static int compare_ranks(struct ckpt_findings *f, const struct ckpt_findings_side *now,
			 const struct ckpt_findings_side *before)
{
	unsigned is = 0, was = 0;
	int rc = now->files->each(now->files->arg, now->path, take_rank, &is);

	if (!rc)
		rc = before->files->each(before->files->arg, before->path, take_rank, &was);
	if (rc == -ENOENT)
		return 0;
	if (!rc && is < was)
		rc = add(f, CKPT_FINDING_RANKS, NULL, *now->path ? now->path : ".",
			 "files of %u ranks, and of %u in the step before", is, was);
	return rc;
}

static int find_gone(struct ckpt_findings *f, const struct names *now, const struct ckpt_catalog *before)
{
	int rc = 0;

	for (size_t i = 0; i < ckpt_catalog_count(before) && !rc; i++) {
		struct ckpt_catalog_array a, is;
		size_t at;

		ckpt_catalog_get(before, i, &a);
		rc = find_there(now, &a, &at);
		if (rc == -ENOENT) {
			rc = add(f, CKPT_FINDING_GONE, &a, NULL, "the step before has it");
		} else if (!rc && !ckpt_catalog_is_object(&a)) {
			ckpt_catalog_get(now->c, at, &is);
			if (ckpt_catalog_is_object(&is))
				rc = add(f, CKPT_FINDING_GONE, &is, NULL,
					 "it is an object of the program, and an array in the step before");
		}
	}
	return rc;
}

int ckpt_findings_since(struct ckpt_findings *f, const struct ckpt_findings_side *now,
			const struct ckpt_findings_side *before)
{
	struct names there = {0}, here = {0};
	int rc = names_of(before, now, &there);

	if (!rc)
		rc = names_of(now, before, &here);
	for (size_t i = 0; i < ckpt_catalog_count(now->catalog) && !rc; i++) {
		struct ckpt_catalog_array a, was;
		size_t at;

		ckpt_catalog_get(now->catalog, i, &a);
		rc = ckpt_catalog_goes_on(now->catalog, 1) ?: find_there(&there, &a, &at);
		if (rc == -ENOENT) {
			rc = 0;
			continue;
		}
		if (!rc) {
			ckpt_catalog_get(before->catalog, at, &was);
			rc = a.why || was.why ? 0 : compare_kinds(f, &a, &was);
		}
	}
	if (!rc)
		rc = find_gone(f, &here, before->catalog);
	if (!rc)
		rc = compare_ranks(f, now, before);
	free(there.order);
	free(here.order);
	return rc;
}

// --- Elements ---------------------------------------------------------------------------------------------------------------

bool ckpt_findings_may_read(const struct ckpt_catalog *c, size_t array)
{
	struct ckpt_catalog_array a;
	uint64_t elements, bytes = 0;

	ckpt_catalog_get(c, array, &a);
	for (size_t k = 0; k < a.pieces; k++) {
		struct ckpt_piece p;

		ckpt_catalog_piece(c, array, k, &p);
		if (__builtin_add_overflow(bytes, p.bytes, &bytes))
			return true;
	}
	return ckpt_array_elements(a.shape, a.ndim, &elements) &&
	       (elements <= ELEMENTS_FREE || (elements - ELEMENTS_FREE) / ELEMENTS_OF_BYTE <= bytes);
}

const char *ckpt_findings_why(int error)
{
	return error == -ENODATA   ? "a part of it is in no file"
	       : error == -ENOENT  ? "a file of it is missing"
	       : error == -EBADMSG ? "its bytes are damaged"
	       : error == -ENOTSUP ? "its codec is not known"
	       : error == -EFBIG   ? "it would take more work than is allowed"
				   : strerror(-error);
}

// Two arrays of one shape and type, element by element.
struct pair {
	struct ckpt_gather *now, *before; // before: NULL
	void *elements, *others;
	double *numbers; // NULL: they have no order
	enum ckpt_dtype dtype;
	struct ckpt_scan is;
	uint64_t count;
	bool compared, same;
	uint8_t digest[CKPT_ARRAY_DIGEST_LEN];
	const uint8_t *was; // the digest of before, which is not read then; NULL: it is not known
};

struct elements {
	struct ckpt_findings *f;
	const struct ckpt_findings_side *now, *before;
	struct names there;
	struct ckpt_findings_reading *how;
	uint32_t *same; // arrays as before, in the order of their tree
	size_t same_count, changed;
	uint64_t bytes; // of the arrays that were read
};

static int read_pair(struct elements *e, size_t i, struct pair *p)
{
	unsigned width = ckpt_gather_width(p->now);
	bool known = e->how->take_digest && e->how->know_digest(e->how->digest_arg, i, p->digest);
	bool hashed = e->how->take_digest && !known;
	struct ckpt_array_digest digest;

	ckpt_scan_begin(&p->is, p->dtype);
	p->same = p->before != NULL || p->same;
	p->count = ckpt_gather_elements(p->now);
	if (hashed)
		ckpt_array_digest_begin(&digest, p->count * width);
	for (uint64_t at = 0, n; at < p->count; at += n) {
		int rc;

		n = MIN(p->count - at, (uint64_t)ELEMENTS_AT_ONCE);
		rc = ckpt_gather_run(p->now, at, n, p->elements);
		if (rc)
			return rc;
		if (p->numbers)
			ckpt_scan_add(&p->is, p->elements, (size_t)n, p->numbers);
		if (hashed)
			ckpt_array_digest_add(&digest, p->elements, (size_t)n * width);
		// A part of the step before that cannot be read is that step's trouble.
		if (p->same && p->before)
			p->same = !ckpt_gather_run(p->before, at, n, p->others) &&
				  !memcmp(p->elements, p->others, (size_t)n * width);
		if (e->how->go_on && !e->how->go_on(e->how->arg, n * width))
			return -EINTR;
	}
	if (hashed)
		ckpt_array_digest_end(&digest, p->digest);
	if (p->was)
		p->same = !memcmp(p->digest, p->was, sizeof(p->digest));
	if (e->how->take_digest)
		e->how->take_digest(e->how->digest_arg, i, p->digest);
	return 0;
}

static void pair_done(struct pair *p)
{
	ckpt_gather_free(p->now);
	ckpt_gather_free(p->before);
	free(p->elements);
	free(p->others);
	free(p->numbers);
}

// Another shape or type is no less a change than other bytes are.
static int open_before(const struct elements *e, size_t i, const struct ckpt_catalog_array *a, struct pair *p)
{
	enum ckpt_findings_known known;
	struct ckpt_catalog_array was;
	size_t at;
	int rc = e->before ? find_there(&e->there, a, &at) : -ENOENT;

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	ckpt_catalog_get(e->before->catalog, at, &was);
	if (was.why || was.dtype != a->dtype || !same_shape(a, &was))
		return 0;
	known = e->how->same ? e->how->same(e->how->same_arg, i, at) : CKPT_FINDINGS_NOT_KNOWN;
	p->compared = true;
	p->same = known == CKPT_FINDINGS_SAME;
	if (known == CKPT_FINDINGS_NOT_KNOWN && e->how->take_digest)
		p->was = was.digest;
	if (known != CKPT_FINDINGS_NOT_KNOWN || p->was)
		return 0;
	rc = ckpt_gather_new(e->before->catalog, at, e->before->files, &p->before);
	p->compared = !rc;
	return rc == -ENOMEM ? rc : 0;
}

static int open_pair(const struct elements *e, size_t i, const struct ckpt_catalog_array *a, struct pair *p)
{
	size_t bytes;
	int rc = ckpt_gather_new(e->now->catalog, i, e->now->files, &p->now);

	if (!rc)
		rc = open_before(e, i, a, p);
	if (rc)
		return rc;
	bytes = (size_t)ELEMENTS_AT_ONCE * ckpt_gather_width(p->now);
	p->dtype = a->dtype;
	p->elements = malloc(bytes);
	p->others = p->before ? malloc(bytes) : NULL;
	p->numbers = ckpt_is_number(a->dtype) ? malloc(ELEMENTS_AT_ONCE * sizeof(double)) : NULL;
	return p->elements && (!p->before || p->others) && (!ckpt_is_number(a->dtype) || p->numbers) ? 0 : -ENOMEM;
}

static int tell_pair(struct elements *e, size_t i, const struct ckpt_catalog_array *a, const struct pair *p)
{
	bool all_zero = p->numbers && p->is.all_zero;
	int rc = 0;

	if (p->is.nan)
		rc = add(e->f, CKPT_FINDING_NAN, a, NULL, "%" PRIu64 " of %" PRIu64 " elements are NaN", p->is.nan,
			 p->count);
	if (!rc && p->is.inf)
		rc = add(e->f, CKPT_FINDING_INF, a, NULL, "%" PRIu64 " of %" PRIu64 " elements are infinite", p->is.inf,
			 p->count);
	if (!rc && all_zero && p->count > 1)
		rc = add(e->f, CKPT_FINDING_ZERO, a, NULL, "all %" PRIu64 " elements are zero", p->count);
	if (p->same && p->count > 1 && !all_zero)
		e->same[e->same_count++] = (uint32_t)i;
	else if (p->compared && !p->same)
		e->changed++;
	return rc;
}

// Bytes of the array that are read; saturates.
static uint64_t bytes_of(const struct ckpt_catalog_array *a)
{
	uint64_t bytes = MAX(ckpt_dtype_width(a->dtype), 1u);

	for (unsigned i = 0; i < a->ndim; i++)
		if (__builtin_mul_overflow(bytes, a->shape[i], &bytes))
			return UINT64_MAX;
	return bytes;
}

// Many arrays may be the same bytes.
static bool is_too_much(struct elements *e, const struct ckpt_catalog_array *a)
{
	uint64_t bytes = bytes_of(a);

	if (!e->how->bytes_max)
		return false;
	if (bytes > e->how->bytes_max - e->bytes)
		return true;
	e->bytes += bytes;
	return false;
}

static int read_array(struct elements *e, size_t i)
{
	struct ckpt_catalog_array a;
	struct pair p = {0};
	int rc;

	ckpt_catalog_get(e->now->catalog, i, &a);
	if (a.why)
		return 0;
	if (!ckpt_findings_may_read(e->now->catalog, i) || is_too_much(e, &a)) {
		e->how->not_read++;
		return 0;
	}
	rc = open_pair(e, i, &a, &p);
	if (!rc)
		rc = read_pair(e, i, &p);
	if (!rc) {
		e->how->arrays++;
		rc = tell_pair(e, i, &a, &p);
	} else if (rc != -ENOMEM && rc != -EINTR) {
		// A gap was found in the headers.
		rc = rc == -ENODATA || rc == -ENOENT
			     ? 0
			     : add(e->f, CKPT_FINDING_DAMAGED, &a, NULL, "%s", ckpt_findings_why(rc));
	}
	pair_done(&p);
	return rc;
}

static bool is_floating(enum ckpt_dtype dtype)
{
	return dtype == CKPT_DTYPE_F16 || dtype == CKPT_DTYPE_BF16 || dtype == CKPT_DTYPE_F32 ||
	       dtype == CKPT_DTYPE_F64;
}

// A step that is saved again without a change is no finding.
static int tell_same(const struct elements *e)
{
	int rc = 0;

	for (size_t i = 0; e->changed && i < e->same_count && !rc; i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(e->now->catalog, e->same[i], &a);
		if (is_floating(a.dtype))
			rc = add(e->f, CKPT_FINDING_SAME, &a, NULL,
				 "it is as in the step before, and others have changed");
	}
	return rc;
}

int ckpt_findings_of_elements(struct ckpt_findings *f, const struct ckpt_findings_side *now,
			      const struct ckpt_findings_side *before, struct ckpt_findings_reading *how)
{
	size_t count = ckpt_catalog_count(now->catalog);
	struct elements e = {.f = f, .now = now, .before = before, .how = how};
	int rc = 0;

	e.same = ckpt_calloc(count + 1, sizeof(*e.same));
	rc = e.same ? 0 : -ENOMEM;
	if (!rc && before)
		rc = names_of(before, now, &e.there);
	for (size_t i = 0; i < count && !rc; i++)
		rc = read_array(&e, i);
	if (!rc)
		rc = tell_same(&e);
	free(e.there.order);
	free(e.same);
	return rc;
}
