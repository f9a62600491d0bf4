// jansson's reader drops what it has no memory for, and then ends the process by an assertion of its own. So an allocation that
// fails while it reads is served from a reserve, which was made before: it goes on to the end of what it has been given, which
// is not much more, and what it read is thrown away.
#include "core/base/json.h"

#include "core/base/util.h"

#include <pthread.h>

#define RESERVE_BYTES ((size_t)256 << 10) // and the longest string, twice
#define ALIGN ((size_t)16)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local bool starved; // of memory, since begin
static _Thread_local struct {
	char *first, *next, *end;
} reserve; // while it reads

static void *json_malloc(size_t bytes)
{
	void *p = malloc(bytes);

	if (p)
		return p;
	starved = true;
	bytes = (bytes + ALIGN - 1) & ~(ALIGN - 1);
	if (bytes > (size_t)(reserve.end - reserve.next))
		return NULL;
	p = reserve.next;
	reserve.next += bytes;
	return p;
}

static void json_free(void *p)
{
	if ((char *)p < reserve.first || (char *)p >= reserve.end)
		free(p);
}

static void watch_memory(void)
{
	json_set_alloc_funcs(json_malloc, json_free);
}

void ckpt_json_begin(void)
{
	pthread_once(&once, watch_memory);
	starved = false;
}

struct text {
	const char *at;
	size_t len;
};

static size_t give(void *buf, size_t cap, void *arg)
{
	struct text *t = arg;
	size_t n = starved ? 0 : MIN(cap, t->len);

	memcpy(buf, t->at, n);
	t->at += n;
	t->len -= n;
	return n;
}

int ckpt_json_load(const char *text, size_t len, size_t flags, json_error_t *error, json_t **ret_json)
{
	CLEANUP_FREE char *memory = NULL;
	struct text t = {text, len};
	size_t bytes;

	*ret_json = NULL;
	if (__builtin_mul_overflow(len, (size_t)4, &bytes) || __builtin_add_overflow(bytes, RESERVE_BYTES, &bytes) ||
	    !(memory = malloc(bytes)))
		return -ENOMEM;
	ckpt_json_begin();
	reserve.first = reserve.next = memory;
	reserve.end = memory + bytes;
	*ret_json = json_load_callback(give, &t, flags, error);
	if (starved)
		json_decref(TAKE_PTR(*ret_json));
	reserve.first = reserve.next = reserve.end = NULL;
	return starved ? -ENOMEM : *ret_json ? 0 : -EINVAL;
}

size_t ckpt_json_tame(char *text, size_t len)
{
	static const char *const words[] = {"NaN", "-Infinity", "Infinity"};
	bool quoted = false;
	size_t count = 0;

	for (size_t i = 0; i < len; i++) {
		if (quoted && text[i] == '\\') {
			i++;
		} else if (text[i] == '"') {
			quoted = !quoted;
		} else if (!quoted) {
			for (size_t w = 0; w < ARRAY_LEN(words); w++) {
				size_t n = strlen(words[w]);

				if (len - i < n || memcmp(text + i, words[w], n))
					continue;
				memset(text + i, ' ', n);
				text[i] = text[i + 1] = '"';
				i += n - 1;
				count++;
				break;
			}
		}
	}
	return count;
}

char *ckpt_json_dump(json_t *json, size_t flags)
{
	char *text = json ? json_dumps(json, flags) : NULL;

	json_decref(json);
	if (!starved)
		return text;
	free(text);
	return NULL;
}
