// What takes the room of a disk, for people and programs.
#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/cold/garbage.h"
#include "core/step/store.h"
#include "core/store/room.h"

static uint64_t sum_of(const json_t *sessions, bool left)
{
	const json_t *row;
	uint64_t bytes = 0;
	size_t i;

	json_array_foreach(sessions, i, row)
	{
		const char *state = json_string_value(json_object_get(row, "state"));

		if ((state && strcmp(state, "live")) == left)
			bytes += (uint64_t)json_integer_value(json_object_get(row, "bytes"));
	}
	return bytes;
}

json_t *ckpt_room_json(struct ckpt_store *s, const json_t *sessions)
{
	struct ckpt_room_state state;

	if (ckpt_room_measure(s, &state))
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "free_bytes", (json_int_t)state.free_bytes,
			 "disk_bytes", (json_int_t)state.disk_bytes, "reserve_bytes", (json_int_t)state.reserve_bytes,
			 "trash_bytes", (json_int_t)state.trash_bytes, "trash_steps", (json_int_t)state.trash_steps,
			 "staged_bytes", (json_int_t)sum_of(sessions, false), "left_over_bytes",
			 (json_int_t)sum_of(sessions, true), "garbage_bytes", (json_int_t)ckpt_garbage_bytes(s),
			 "short", (int)state.is_short);
}

static const char *size_of(const json_t *room, const char *key, char text[CKPT_SIZE_MAX])
{
	return ckpt_size_text((uint64_t)json_integer_value(json_object_get(room, key)), text);
}

void ckpt_room_print(FILE *f, const json_t *room)
{
	json_int_t steps = json_integer_value(json_object_get(room, "trash_steps"));
	char a[CKPT_SIZE_MAX], b[CKPT_SIZE_MAX], c[CKPT_SIZE_MAX], d[CKPT_SIZE_MAX];

	if (!json_is_object(room))
		return;
	fprintf(f, "room         %s of %s free; trash %s in %" JSON_INTEGER_FORMAT " step%s, staged %s",
		size_of(room, "free_bytes", a), size_of(room, "disk_bytes", b), size_of(room, "trash_bytes", c), steps,
		steps == 1 ? "" : "s", size_of(room, "staged_bytes", d));
	fprintf(f, ", left over %s, garbage %s\n", size_of(room, "left_over_bytes", a),
		size_of(room, "garbage_bytes", b));
	if (json_is_true(json_object_get(room, "short")))
		fprintf(f, "             less than the reserve of %s is free: %s\n", size_of(room, "reserve_bytes", a),
			steps ? "the rest of the trash cannot be removed"
			      : "deleted steps were removed, and nothing can be undeleted");
}
