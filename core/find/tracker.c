#include "core/find/tracker.h"

#include "core/base/util.h"
#include "core/find/find.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <stdio.h>

// The one word that a small file holds; false: there is no such file, or it holds something else.
static bool read_word(int dirfd, const char *name, char word[CKPT_NAME_MAX + 1])
{
	CLEANUP_FD int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char text[CKPT_NAME_MAX + 32] = "";
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	char *start = text + strspn(text, " \t\r\n");
	size_t word_len = strcspn(start, "\r\n");

	while (word_len && (start[word_len - 1] == ' ' || start[word_len - 1] == '\t'))
		word_len--;
	if (len <= 0 || !word_len || word_len > CKPT_NAME_MAX)
		return false;
	memcpy(word, start, word_len);
	word[word_len] = '\0';
	return true;
}

static struct ckpt_step *step_of_iteration(struct ckpt_store *s, const char *folder_id, const char *word)
{
	struct ckpt_step *step;
	char *end, name[64];
	long long iteration;

	if (!strcmp(word, "release"))
		return ckpt_find_committed(s, folder_id, word);
	errno = 0;
	iteration = strtoll(word, &end, 10);
	if (*end || errno || iteration < 0)
		return NULL;
	snprintf(name, sizeof(name), "iter_%07lld", iteration);
	step = ckpt_find_committed(s, folder_id, name);
	if (step)
		return step;
	snprintf(name, sizeof(name), "global_step_%lld", iteration);
	return ckpt_find_committed(s, folder_id, name);
}

struct ckpt_step *ckpt_tracker_step(struct ckpt_store *s, const char *folder, const char *folder_id)
{
	CLEANUP_FD int dirfd =
		openat(s->tree_fd, *folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char word[CKPT_NAME_MAX + 1];
	struct ckpt_step *step = NULL;

	if (dirfd < 0)
		return NULL;
	if (read_word(dirfd, "latest_checkpointed_iteration.txt", word))
		step = step_of_iteration(s, folder_id, word);
	if (!step && read_word(dirfd, "latest", word))
		step = ckpt_find_committed(s, folder_id, word);
	return step;
}
