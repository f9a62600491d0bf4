// What the fuzzer of requests chooses by the bytes of its input: names, nodes and handles that it knows, sizes, contents.
#pragma once

#include "tests/fuzz/kernel.h"

#define KEPT "kept_77" // the step that nobody asks for

static const uint8_t *input;
static size_t input_len;

static uint8_t take(void)
{
	if (!input_len)
		return 0;
	input_len--;
	return *input++;
}

#define take_one_of(list) ((list)[take() % ARRAY_LEN(list)])

static const char *const names[] = {
	"a",
	"1000",
	"model.bin",
	".finalize",
	"w.pt",
	"1000.orbax-checkpoint-tmp-1",
	"step_5",
	"latest_checkpointed_iteration.txt",
	"logs",
	".ckptfs",
	"latest",
	"metadata.json",
	"checkpoint-5",
	"tmp-checkpoint-5",
	"trainer_state.json",
	"x.partial_save",
	"b",
	"status.json",
	"errors",
	"staged",
	"trash",
	"metrics",
	"config",
	".arrays",
	".metadata",
	".again-a",
	"global_step7",
	"tracker.txt",
	"random_states_0.pkl",
	"_CHECKPOINT_METADATA",
	"\x01\x7f",
	"\xff\xfe",
	"caf\xc3\xa9 %2F:,",
	"5",
	"release",
};

// One of the list, one of the longest, or any bytes that the kernel lets through.
static const char *take_name(void)
{
	static char name[CKPT_NAME_MAX + 1];
	uint8_t which = take();
	size_t len;

	if (which < 224)
		return names[which % ARRAY_LEN(names)];
	len = which < 228 ? CKPT_NAME_MAX : 1 + take() % 8;
	for (size_t i = 0; i < len; i++) {
		uint8_t byte = which < 228 ? 'n' : take();

		name[i] = (char)(byte && byte != '/' ? byte : '_');
	}
	name[len] = '\0';
	return strcmp(name, ".") && strcmp(name, "..") && strcmp(name, KEPT) ? name : "_";
}

// A node that is known, of this type (0: any); the root where there is none.
static size_t take_node(mode_t type)
{
	size_t from = take();

	for (size_t i = 0; i < kernel.node_count; i++) {
		size_t at = (from + i) % kernel.node_count;
		const struct known_node *n = &kernel.nodes[at];

		if ((!at || n->lookups) && (!type || n->type == type))
			return at;
	}
	return 0;
}

static uint64_t node_at(size_t node)
{
	return kernel.nodes[node].id;
}

enum want { ANY_FILE, READS, WRITES, DIRECTORY };

// An open handle of this kind; SIZE_MAX: none.
static size_t take_handle(enum want want)
{
	size_t from = take();

	for (size_t i = 0; i < kernel.handle_count; i++) {
		size_t at = (from + i) % kernel.handle_count;
		const struct known_handle *h = &kernel.handles[at];
		uint32_t mode = h->flags & O_ACCMODE;

		if (h->dir == (want == DIRECTORY) && (want != READS || mode != O_WRONLY) &&
		    (want != WRITES || mode != O_RDONLY))
			return at;
	}
	return SIZE_MAX;
}

static uint64_t take_offset(uint64_t len)
{
	static const uint64_t offsets[] = {0, 0, 0, 1, 100, 4095, 4096, 65536, 1 << 20, UINT64_C(1) << 40, INT64_MAX};

	return MIN(take_one_of(offsets), INT64_MAX - len);
}

static uint32_t take_len(void)
{
	static const uint32_t lens[] = {1, 2, 16, 100, 512, 4095, 4096, 4097, 65536, 65537, 131072, 131073, 1 << 20};

	return take_one_of(lens);
}

static const char *const texts[] = {
	"x",
	"{}",
	"{\"temporary\":true,\"metrics\":{\"loss\":0.5}}",
	"{\"world_size\":0}",
	"{\"sharded_backend\":\"torch_dist\"}",
	"{\"step\":5}",
	"1000",
	"100\n",
	"global_step7",
	"\x80\x02.",
	"PK\x05\x06",
	"[[[[[[[[",
};
