// A fuzzer's main() for compilers without libFuzzer: runs every file of the directories and files that it is given, and
// then mutations of each, so that a plain build replays the corpus as a test. With -DCKPT_LIBFUZZER there is none.
#pragma once

#include "tests/support/formats.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define REPLAY_BYTES_MAX (1u << 20)
#define REPLAY_MUTATIONS 2000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#ifndef CKPT_LIBFUZZER
static int replay_file(const char *path)
{
	static uint8_t data[REPLAY_BYTES_MAX], changed[REPLAY_BYTES_MAX + 8];
	uint64_t state = 1;
	FILE *f = fopen(path, "rb");
	size_t len;

	if (!f) {
		perror(path);
		return -1;
	}
	len = fread(data, 1, sizeof(data), f);
	fclose(f);
	LLVMFuzzerTestOneInput(data, len);
	for (int i = 0; i < REPLAY_MUTATIONS; i++) {
		size_t changed_len = len;

		for (size_t k = 0; k < len; k++)
			changed[k] = data[k];
		changed_len = ckpt_sample_mutate(&state, changed, changed_len, sizeof(changed));
		LLVMFuzzerTestOneInput(changed, changed_len);
	}
	return 1;
}

static int replay(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char file[4096];
	int count = 0;

	if (!dir)
		return replay_file(path);
	while ((entry = readdir(dir))) {
		int r;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
		r = replay_file(file);
		if (r < 0) {
			count = r;
			break;
		}
		count += r;
	}
	closedir(dir);
	return count;
}

int main(int argc, char **argv)
{
	int count = 0;

	for (int i = 1; i < argc; i++) {
		int r = replay(argv[i]);

		if (r < 0)
			return EXIT_FAILURE;
		count += r;
	}
	printf("%d inputs\n", count);
	return count ? EXIT_SUCCESS : EXIT_FAILURE; // an empty corpus tests nothing
}
#endif
