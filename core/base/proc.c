#include "core/base/proc.h"

#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>

bool ckpt_proc_read(pid_t tid, const char *file, char *ret_text, size_t cap)
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, file);
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	n = read(fd, ret_text, cap - 1);
	if (n <= 0)
		return false;
	ret_text[n] = '\0';
	return true;
}

const char *ckpt_proc_field(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	while (at && at != text && at[-1] != '\n')
		at = strstr(at + 1, name);
	if (!at)
		return NULL;
	at += strlen(name);
	return at + strspn(at, "\t ");
}

pid_t ckpt_proc_process(pid_t tid)
{
	char status[CKPT_PROC_STATUS_MAX];
	const char *tgid;

	if (!tid || !ckpt_proc_read(tid, "status", status, sizeof(status)))
		return 0;
	tgid = ckpt_proc_field(status, "Tgid:");
	return tgid ? (pid_t)strtol(tgid, NULL, 10) : 0;
}

bool ckpt_proc_comm(pid_t tid, char *ret_comm, size_t cap)
{
	pid_t process = ckpt_proc_process(tid);
	size_t len;

	if (!process || !ckpt_proc_read(process, "comm", ret_comm, cap))
		return false;
	len = strlen(ret_comm);
	if (len && ret_comm[len - 1] == '\n')
		ret_comm[len - 1] = '\0';
	return true;
}

// The second field, the name, is in parentheses and may hold anything.
bool ckpt_proc_stat(pid_t tid, unsigned long long ret_fields[CKPT_PROC_FIELDS])
{
	char stat[2048], *at, *save = NULL;
	int field = 3;

	if (!ckpt_proc_read(tid, "stat", stat, sizeof(stat)) || !(at = strrchr(stat, ')')))
		return false;
	memset(ret_fields, 0, CKPT_PROC_FIELDS * sizeof(*ret_fields));
	for (char *word = strtok_r(at + 1, " \n", &save); word && field < CKPT_PROC_FIELDS;
	     word = strtok_r(NULL, " \n", &save), field++)
		ret_fields[field] = field == 3 ? (unsigned char)*word : strtoull(word, NULL, 10);
	return true;
}
