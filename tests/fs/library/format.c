// An example for libckptfs: a format of a program's own. Its files are "MINE", a byte for the version, one for the rank, dimensions as u32, and float32.
// Version 1 has the elements in C order, version 2 in Fortran's.
//
//	format STORE STEP [find ACTION NAME VERSION]
//
// A line for each array of the step: TREE NAME FORMAT, its elements or why it has none.
#include <ckptfs.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD 6

static int probe(void *arg, struct ckpt_format_file *file)
{
	char head[HEAD];

	return ckpt_format_bytes(file) >= HEAD && !ckpt_format_read(file, 0, head, HEAD) && !memcmp(head, "MINE", 4) &&
	       head[4] == *(const char *)arg;
}

static int read_mine(void *arg, struct ckpt_format_file *file)
{
	struct ckpt_format_array a = {.name = "mine", .dtype = "float32"};
	struct ckpt_format_piece p = {0};
	uint64_t shape[8], strides[8], step = 1;
	unsigned char head[HEAD];
	uint32_t dims[8];
	int rc = ckpt_format_read(file, 0, head, HEAD);

	if (rc)
		return rc;
	if (head[5] > 8)
		return ckpt_format_refuse(file, "rank", "it is more than 8");
	rc = ckpt_format_read(file, HEAD, dims, head[5] * sizeof(*dims));
	if (rc)
		return ckpt_format_refuse(file, "dimensions", "the file ends within them");
	for (unsigned i = 0; i < head[5]; i++) {
		shape[i] = dims[i];
		strides[i] = step;
		step *= dims[i];
	}
	a.shape = shape;
	a.ndim = head[5];
	p.offset = HEAD + head[5] * sizeof(*dims);
	p.strides = *(const char *)arg == 2 ? strides : NULL;
	rc = ckpt_format_add(file, &a);
	return rc ? rc : ckpt_format_add_piece(file, &p);
}

static int list(struct ckpt *c, const char *step)
{
	struct ckpt_array_set *set;
	int rc = ckpt_array_set_open(c, step, &set);

	for (size_t i = 0; !rc && i < ckpt_array_set_count(set); i++) {
		const struct ckpt_array_info *a = ckpt_array_set_at(set, i);
		float *elements = a->why ? NULL : malloc(a->bytes + 1);

		printf("%s %s %s", a->tree, a->name, a->format);
		if (a->why)
			printf(" %s", a->why);
		else
			rc = ckpt_array_set_read(set, i, NULL, NULL, elements);
		for (size_t k = 0; elements && !rc && k < a->bytes / sizeof(float); k++)
			printf(" %g", (double)elements[k]);
		puts("");
		free(elements);
	}
	if (!rc)
		ckpt_array_set_free(set);
	return rc;
}

int main(int argc, char **argv)
{
	static const char one = 1, two = 2;
	const struct ckpt_format_ops first = {probe, read_mine, (void *)&one},
				     second = {probe, read_mine, (void *)&two};
	struct ckpt *c;
	char why[2048];
	int rc = ckpt_format_register("mine", 1, &first);

	if (!rc)
		rc = ckpt_format_register("mine", 2, &second);
	if (rc || ckpt_format_register("mine", 2, &first) != -EEXIST ||
	    ckpt_format_register("npy", 1, &first) != -EEXIST ||
	    ckpt_format_register("my format", 1, &first) != -EINVAL ||
	    ckpt_format_register("mine", 0, &first) != -EINVAL)
		return 3;
	if (argc == 7) {
		rc = ckpt_format_find(argv[4], argv[5], (unsigned)atoi(argv[6]), why, sizeof(why));
		puts(rc ? why : "found");
		return rc ? 1 : 0;
	}
	rc = ckpt_open(argv[1], 0, &c);
	if (!rc) {
		rc = list(c, argv[2]);
		ckpt_close(c);
	}
	if (rc)
		fprintf(stderr, "%s\n", strerror(-rc));
	return rc ? 1 : 0;
}
