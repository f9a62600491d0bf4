#include "core/objects/probe.h"

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/base/uuid.h"

#include <pthread.h>
#include <stdio.h>

#define RACES 4
#define RIVALS 8
#define KEY_MAX (sizeof("probe/") + CKPT_UUID_LEN)
#define BYTES_MAX 64

static int make_key(char ret_key[KEY_MAX])
{
	char uuid[CKPT_UUID_LEN + 1];
	int rc = ckpt_uuid_make(uuid);

	if (!rc)
		snprintf(ret_key, KEY_MAX, "probe/%s", uuid);
	return rc;
}

static int fail(char *ret_why, const char *what, int rc)
{
	snprintf(ret_why, CKPT_PROBE_WHY_MAX, "%s: %s", what, rc ? strerror(-rc) : "it was done");
	return -ENOTSUP;
}

static int check_content(struct ckpt_objects *o, const char *key, const char *want, char *ret_why)
{
	CLEANUP_FREE char *data = NULL;
	size_t len;
	int rc = ckpt_objects_get_all(o, key, BYTES_MAX, (void **)&data, &len, NULL);

	if (rc == -ENOENT)
		return fail(ret_why, "a get right after the put", rc);
	if (rc && rc != -EFBIG)
		return rc;
	if (rc || len != strlen(want) || memcmp(data, want, len) != 0) {
		snprintf(ret_why, CKPT_PROBE_WHY_MAX, "a get did not give the bytes of the put that won");
		return -ENOTSUP;
	}
	return 0;
}

static int see(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)key, (void)object;
	*(bool *)arg = true;
	return 0;
}

static int check_list(struct ckpt_objects *o, const char *key, char *ret_why)
{
	bool seen = false;
	int rc = ckpt_objects_list(o, key, NULL, see, &seen);

	return rc ? rc : seen ? 0 : fail(ret_why, "a list right after the put", -ENOENT);
}

static int try_alone(struct ckpt_objects *o, const char *key, char *ret_why)
{
	int rc = ckpt_objects_put(o, key, "first", 5, NULL);

	if (rc)
		return rc == -EEXIST ? fail(ret_why, "a put of a new key", rc) : rc;
	rc = ckpt_objects_put(o, key, "other", 5, NULL);
	if (rc != -EEXIST)
		return rc ? rc : fail(ret_why, "a put of a key that was taken", rc);
	rc = check_content(o, key, "first", ret_why);
	return rc ? rc : check_list(o, key, ret_why);
}

struct race {
	struct ckpt_lock gate; // held until all rivals are there
	bool is_off;
};

struct rival {
	struct ckpt_objects *o;
	struct race *race;
	const char *key;
	char bytes[BYTES_MAX];
	pthread_t thread;
	int result;
};

static void *compete(void *arg)
{
	struct rival *r = arg;

	bool is_off;

	ckpt_lock_take(&r->race->gate);
	is_off = r->race->is_off;
	ckpt_lock_drop(&r->race->gate);
	if (!is_off)
		r->result = ckpt_objects_put(r->o, r->key, r->bytes, strlen(r->bytes), NULL);
	return NULL;
}

static int judge(struct ckpt_objects *o, const struct rival *rivals, char *ret_why)
{
	const struct rival *winner = NULL;
	unsigned winners = 0;

	for (size_t i = 0; i < RIVALS; i++) {
		if (rivals[i].result && rivals[i].result != -EEXIST)
			return rivals[i].result;
		winners += !rivals[i].result;
		winner = rivals[i].result ? winner : &rivals[i];
	}
	if (winners != 1) {
		snprintf(ret_why, CKPT_PROBE_WHY_MAX, "of %d puts of one key at once %u won", RIVALS, winners);
		return -ENOTSUP;
	}
	return check_content(o, winner->key, winner->bytes, ret_why);
}

static int try_race(struct ckpt_objects *o, const char *key, char *ret_why)
{
	struct rival rivals[RIVALS];
	struct race race = {0};
	unsigned started = 0;
	int rc = 0;

	ckpt_lock_init(&race.gate, CKPT_LOCK_LEAF);
	ckpt_lock_take(&race.gate);
	for (; started < RIVALS && !rc; started += !rc) {
		rivals[started] = (struct rival){.o = o, .race = &race, .key = key};
		snprintf(rivals[started].bytes, BYTES_MAX, "rival %u", started);
		rc = -pthread_create(&rivals[started].thread, NULL, compete, &rivals[started]);
	}
	race.is_off = rc;
	ckpt_lock_drop(&race.gate);
	for (unsigned i = 0; i < started; i++)
		pthread_join(rivals[i].thread, NULL);
	ckpt_lock_done(&race.gate);
	return rc ? rc : judge(o, rivals, ret_why);
}

int ckpt_objects_probe(struct ckpt_objects *o, bool race, char ret_why[CKPT_PROBE_WHY_MAX])
{
	int rc = 0;

	*ret_why = '\0';
	for (int i = 0; i <= (race ? RACES : 0) && !rc; i++) {
		char key[KEY_MAX];

		rc = make_key(key);
		if (rc)
			return rc;
		rc = i ? try_race(o, key, ret_why) : try_alone(o, key, ret_why);
		(void)ckpt_objects_remove(o, key);
	}
	return rc;
}
