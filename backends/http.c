// States of a call, and who moves it on (all under `lock` but where the thread alone has it):
//
//   waiting    ckpt_http_start() put it into the queue
//   active     the thread gave it to libcurl, when a connection was free
//   done       the thread took it back, or ckpt_http_wait() took it out of the queue; is_done is set, and `changed` is signalled
//
//   1. Only the thread calls libcurl for an active call.
//   2. A call that is done is in no list, and nobody but its owner touches it.
#include "backends/http.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <strings.h>

#define CONNECTIONS_MAX 32
#define CONNECT_MS 5000L
#define QUIET_NS INT64_C(30000000000)
#define QUIET_BYTES_PER_S 1024L
#define LIMIT_NS INT64_C(60000000000)
#define LIMIT_NS_PER_BYTE 10000 // 100 KB/s
#define POLL_MS 10000
#define LOOK_NS INT64_C(50000000) // at until->cancelled
#define BUFFER_BYTES (256L << 10)

struct ckpt_http {
	struct ckpt_http_config config;
	CURLM *multi;
	pthread_t thread;
	char *ca_file; // NULL: the system's
	// Of the thread.
	struct ckpt_http_call *active;
	unsigned active_count;

	struct ckpt_lock lock;
	pthread_cond_t changed; // a call is done
	// Guarded by lock.
	struct ckpt_http_call *waiting;
	bool closing;
};

// --- The thread -------------------------------------------------------------------------------------------------------

static struct ckpt_http_call **find(struct ckpt_http_call **list, const struct ckpt_http_call *call)
{
	while (*list && *list != call)
		list = &(*list)->next;
	return list;
}

static void end_locked(struct ckpt_http *h, struct ckpt_http_call *call, int result)
{
	call->result = result;
	call->is_done = true;
	pthread_cond_broadcast(&h->changed);
}

static void retire_locked(struct ckpt_http *h, struct ckpt_http_call *call, int result)
{
	curl_multi_remove_handle(h->multi, call->easy);
	*find(&h->active, call) = call->next;
	h->active_count--;
	end_locked(h, call, result);
}

// libcurl limits each transfer by itself: each gets its part.
static void share_out(const struct ckpt_http *h)
{
	uint64_t each = h->config.bytes_per_s / MAX(h->active_count, 1u);

	for (struct ckpt_http_call *c = h->active; c && h->config.bytes_per_s; c = c->next) {
		curl_easy_setopt(c->easy, CURLOPT_MAX_SEND_SPEED_LARGE, (curl_off_t)MAX(each, (uint64_t)1));
		curl_easy_setopt(c->easy, CURLOPT_MAX_RECV_SPEED_LARGE, (curl_off_t)MAX(each, (uint64_t)1));
	}
}

// False: the end.
static bool take_orders(struct ckpt_http *h)
{
	LOCK_SCOPE(&h->lock);

	for (struct ckpt_http_call *c = h->active, *next; c; c = next) {
		next = c->next;
		if (c->stop)
			retire_locked(h, c, c->stop);
	}
	while (h->waiting && h->active_count < h->config.connections_max) {
		struct ckpt_http_call *c = h->waiting;

		h->waiting = c->next;
		if (curl_multi_add_handle(h->multi, c->easy)) {
			end_locked(h, c, -ENOMEM);
			continue;
		}
		c->is_started = true;
		c->next = h->active;
		h->active = c;
		h->active_count++;
	}
	share_out(h);
	return !h->closing;
}

// A request that was sent before, on a connection that was gone, may have arrived: then no failure of another one counts.
static int result_of(const struct ckpt_http_call *call, CURLcode code)
{
	curl_off_t sent_us = 0; // the headers
	bool was_sent;

	curl_easy_getinfo(call->easy, CURLINFO_PRETRANSFER_TIME_T, &sent_us);
	was_sent = sent_us || call->sent;
	switch (code) {
	case CURLE_OK:
		return 0;
	case CURLE_WRITE_ERROR:
		return call->taken > 0 ? 0 : call->taken ? call->taken : -EIO;
	case CURLE_OPERATION_TIMEDOUT:
		return was_sent ? -ETIMEDOUT : -ENOTCONN;
	case CURLE_OUT_OF_MEMORY:
		return was_sent ? -EIO : -ENOMEM;
	case CURLE_URL_MALFORMAT:
	case CURLE_UNSUPPORTED_PROTOCOL: // of the URL, or of the answer
		return was_sent ? -EIO : -EINVAL;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
		return was_sent ? -EIO : -EACCES;
	default:
		return was_sent ? -EIO : -ENOTCONN;
	}
}

// True: there is room for others.
static bool reap(struct ckpt_http *h)
{
	bool any = false;
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(h->multi, &left))) {
		CURLcode code = message->data.result;
		struct ckpt_http_call *call = NULL;

		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
		if (code == CURLE_ABORTED_BY_CALLBACK) // of ours only one does that
			snprintf(call->answer.why, sizeof(call->answer.why), "the bytes to be sent cannot be read");
		if (code && !*call->answer.why)
			snprintf(call->answer.why, sizeof(call->answer.why), "%s", curl_easy_strerror(code));
		LOCK_SCOPE(&h->lock);
		retire_locked(h, call, result_of(call, code));
		any = true;
	}
	return any;
}

static void *serve(void *arg)
{
	struct ckpt_http *h = arg;
	int running;

	while (take_orders(h)) {
		curl_multi_perform(h->multi, &running);
		if (!reap(h))
			curl_multi_poll(h->multi, NULL, 0, POLL_MS, NULL);
	}
	return NULL;
}

// --- What libcurl calls -------------------------------------------------------------------------------------------------

static size_t on_header(char *data, size_t size, size_t count, void *arg)
{
	struct ckpt_http_answer *a = arg;
	size_t len = size * count, kept = len;

	if (len >= 5 && !memcmp(data, "HTTP/", 5)) { // of the answer; before it one with a status of 1xx may have come
		const char *space = memchr(data, ' ', len);

		a->headers_len = 0;
		a->status = space && data + len - space > 3 ? (int)strtol(space, NULL, 10) : 0;
	}
	while (kept && strchr("\r\n", data[kept - 1]))
		kept--;
	if (memchr(data, '\0', kept) || kept + 1 > sizeof(a->headers) - a->headers_len)
		return 0;
	memcpy(a->headers + a->headers_len, data, kept);
	a->headers[a->headers_len + kept] = '\0';
	a->headers_len += kept + 1;
	return len;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
	struct ckpt_http_call *call = arg;
	size_t len = size * count;

	if (len && call->request.take)
		call->taken = call->request.take(call->request.arg, &call->answer, data, len);
	return call->taken ? 0 : len;
}

static size_t give_body(char *buf, size_t size, size_t count, void *arg)
{
	struct ckpt_http_call *call = arg;
	const struct ckpt_http_request *r = &call->request;
	size_t len = MIN(size * count, r->body_len - call->sent);

	if (r->source && ckpt_source_read(r->source, call->sent, buf, len))
		return CURL_READFUNC_ABORT;
	if (!r->source && len)
		memcpy(buf, (const char *)r->body + call->sent, len);
	call->sent += len;
	return len;
}

// libcurl would begin again where a connection that was used before turns out to be gone.
static int seek_body(void *arg, curl_off_t offset, int origin)
{
	struct ckpt_http_call *call = arg;

	if (call->request.once || origin != SEEK_SET || offset < 0 || (size_t)offset > call->request.body_len)
		return CURL_SEEKFUNC_FAIL;
	call->sent = (size_t)offset;
	return CURL_SEEKFUNC_OK;
}

// --- Calls --------------------------------------------------------------------------------------------------------------

static int set_lines(struct ckpt_http_call *call)
{
	// One megabyte waits for no permission to be sent.
	struct curl_slist *lines = curl_slist_append(NULL, "Expect:"), *more;

	for (const char *const *h = call->request.headers; lines && h && *h; h++) {
		more = curl_slist_append(lines, *h);
		if (!more)
			curl_slist_free_all(lines);
		lines = more;
	}
	call->lines = lines;
	return lines ? 0 : -ENOMEM;
}

static void set_body(CURL *e, struct ckpt_http_call *call)
{
	const struct ckpt_http_request *r = &call->request;

	if (r->body || r->source || !strcmp(r->method, "PUT") || !strcmp(r->method, "POST")) {
		curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->body_len);
		curl_easy_setopt(e, CURLOPT_READFUNCTION, give_body);
		curl_easy_setopt(e, CURLOPT_READDATA, call);
		curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, seek_body);
		curl_easy_setopt(e, CURLOPT_SEEKDATA, call);
		curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
	}
	// Without a body nobody asks for a seek: a new connection is never tried twice.
	if (r->once && !r->body_len)
		curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
	if (!strcmp(r->method, "HEAD"))
		curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
	else
		curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, r->method);
}

static void set_limits(const struct ckpt_http *h, CURL *e, const struct ckpt_http_request *r)
{
	int64_t limit_ns = r->limit_ns;

	if (!limit_ns)
		limit_ns = LIMIT_NS + (int64_t)MIN(MAX(r->body_len, r->len), (size_t)1 << 40) * LIMIT_NS_PER_BYTE;
	if (h->config.bytes_per_s && !r->limit_ns)
		limit_ns = 0; // slow by the user's wish: only silence ends it
	curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)(limit_ns / 1000000));
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, h->config.bytes_per_s ? 1L : QUIET_BYTES_PER_S);
	curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)MAX(h->config.quiet_ns / 1000000000, INT64_C(1)));
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L); // who is called off waits for no name to be resolved
	curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(e, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
}

static void set_trust(const struct ckpt_http *h, CURL *e, const struct ckpt_http_request *r)
{
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, r->allow_http ? "http,https" : "https");
	curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
	if (h->ca_file)
		curl_easy_setopt(e, CURLOPT_CAINFO, h->ca_file);
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_UNRESTRICTED_AUTH, 0L);
	curl_easy_setopt(e, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	if (r->direct)
		curl_easy_setopt(e, CURLOPT_PROXY, "");
}

static int make_easy(const struct ckpt_http *h, struct ckpt_http_call *call)
{
	CURL *e = call->easy = curl_easy_init();

	if (!e || set_lines(call) || curl_easy_setopt(e, CURLOPT_URL, call->request.url))
		return -ENOMEM;
	curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(e, CURLOPT_HTTPHEADER, call->lines);
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(e, CURLOPT_PRIVATE, call);
	curl_easy_setopt(e, CURLOPT_ERRORBUFFER, call->answer.why);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, &call->answer);
	curl_easy_setopt(e, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, call);
	set_body(e, call);
	set_limits(h, e, &call->request);
	set_trust(h, e, &call->request);
	return 0;
}

_Static_assert(CKPT_HTTP_WHY_MAX >= CURL_ERROR_SIZE, "libcurl writes there");

static int over(const struct ckpt_until *until)
{
	if (!until)
		return 0;
	if (until->cancelled && __atomic_load_n(until->cancelled, __ATOMIC_RELAXED))
		return -ECANCELED;
	return until->deadline_ns && ckpt_sys.mono_ns() >= until->deadline_ns ? -ETIMEDOUT : 0;
}

int ckpt_http_start(struct ckpt_http *h, struct ckpt_http_call *call)
{
	int rc = over(call->request.until);

	if (!rc)
		rc = make_easy(h, call);
	if (rc) {
		call->result = rc;
		call->is_done = true;
		return rc;
	}
	ckpt_lock_take(&h->lock);
	*find(&h->waiting, NULL) = call;
	ckpt_lock_drop(&h->lock);
	curl_multi_wakeup(h->multi);
	return 0;
}

// Waits for the end of the call, or for a while.
static void wait_locked(struct ckpt_http *h, const struct ckpt_http_call *call)
{
	const struct ckpt_until *until = call->request.until;
	int64_t ns = INT64_MAX;

	if (until && !call->stop && until->deadline_ns)
		ns = MAX(until->deadline_ns - ckpt_sys.mono_ns(), INT64_C(1));
	if (until && !call->stop && until->cancelled)
		ns = MIN(ns, LOOK_NS);
	if (ns == INT64_MAX)
		(void)ckpt_lock_wait(&h->changed, &h->lock);
	else
		(void)ckpt_lock_wait_ns(&h->changed, &h->lock, ns);
}

int ckpt_http_wait(struct ckpt_http *h, struct ckpt_http_call *call)
{
	ckpt_lock_take(&h->lock);
	while (!call->is_done) {
		if (!call->stop)
			call->stop = over(call->request.until);
		if (call->stop && !call->is_started) {
			*find(&h->waiting, call) = call->next;
			end_locked(h, call, call->stop);
			break;
		}
		if (call->stop)
			curl_multi_wakeup(h->multi);
		wait_locked(h, call);
	}
	ckpt_lock_drop(&h->lock);
	curl_easy_cleanup(call->easy);
	curl_slist_free_all(call->lines);
	call->easy = call->lines = NULL;
	return call->result;
}

int ckpt_http_run(struct ckpt_http *h, struct ckpt_http_call *call)
{
	(void)ckpt_http_start(h, call);
	return ckpt_http_wait(h, call);
}

// --- Answers ------------------------------------------------------------------------------------------------------------

void ckpt_http_header(const struct ckpt_http_answer *a, const char *name, char *ret_value, size_t size)
{
	size_t name_len = strlen(name);

	*ret_value = '\0';
	for (size_t at = 0; at < a->headers_len; at += strlen(a->headers + at) + 1) {
		const char *line = a->headers + at, *value = line + name_len + 1;

		if (strncasecmp(line, name, name_len) != 0 || line[name_len] != ':')
			continue;
		value += strspn(value, " \t");
		if (strlen(value) < size)
			strcpy(ret_value, value);
		return;
	}
}

int64_t ckpt_http_time_ns(const char *text)
{
	time_t s = curl_getdate(text, NULL);

	return s > 0 && s < INT64_MAX / 1000000000 ? (int64_t)s * 1000000000 : 0;
}

int ckpt_http_take_text(void *arg, const struct ckpt_http_answer *answer, const void *data, size_t len)
{
	struct ckpt_http_text *t = arg;

	(void)answer;
	if (len > t->max - t->len)
		return -EFBIG;
	if (ckpt_grow((void **)&t->data, &t->cap, t->len + len, 1))
		return -ENOMEM;
	memcpy(t->data + t->len, data, len);
	t->len += len;
	return 0;
}

// --- The unit -----------------------------------------------------------------------------------------------------------

static CURLcode global_result;

static void init_global(void)
{
	global_result = curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int start_thread(struct ckpt_http *h)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all); // SIGPIPE, too
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = -pthread_create(&h->thread, NULL, serve, h);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static void http_done(struct ckpt_http **at)
{
	struct ckpt_http *h = *at;

	if (!h)
		return;
	if (h->multi)
		curl_multi_cleanup(h->multi);
	ckpt_lock_done(&h->lock);
	pthread_cond_destroy(&h->changed);
	free(h->ca_file);
	free(h);
}

int ckpt_http_new(const struct ckpt_http_config *config, struct ckpt_http **ret_http)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	CLEANUP(http_done) struct ckpt_http *h = calloc(1, sizeof(*h));
	const char *ca_file = getenv("AWS_CA_BUNDLE");
	int rc;

	pthread_once(&once, init_global);
	if (!h || global_result)
		return -ENOMEM;
	h->config = *config;
	h->config.connections_max = config->connections_max ? config->connections_max : CONNECTIONS_MAX;
	h->config.quiet_ns = config->quiet_ns ? config->quiet_ns : QUIET_NS;
	ckpt_lock_init(&h->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&h->changed, NULL);
	ca_file = ca_file && *ca_file ? ca_file : getenv("SSL_CERT_FILE");
	h->multi = curl_multi_init();
	if (!h->multi || (ca_file && *ca_file && !(h->ca_file = strdup(ca_file))))
		return -ENOMEM;
	curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)h->config.connections_max);
	rc = start_thread(h);
	if (!rc)
		*ret_http = TAKE_PTR(h);
	return rc;
}

void ckpt_http_free(struct ckpt_http *h)
{
	if (!h)
		return;
	ckpt_lock_take(&h->lock);
	h->closing = true;
	ckpt_lock_drop(&h->lock);
	curl_multi_wakeup(h->multi);
	pthread_join(h->thread, NULL);
	http_done(&h);
}
