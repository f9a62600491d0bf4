// The checks of doctor, each told once: of this machine and a local store (verb_doctor.c), of GPUs
// (doctor_device.c), of a store in a bucket (doctor_remote.c).
//
// Threads: one. Failures that are no check are said on stderr; such functions return 0 or an exit status.
#pragma once

#include "core/objects/objects.h"

#include <jansson.h>

struct ckpt_doctor {
	json_t *checks;
	int status; // 1: something required is not as it should be
};

// Takes detail and hint (malloc'ed or NULL). Hints are kept only for what is not as it should be.
void ckpt_doctor_tell(struct ckpt_doctor *d, const char *name, bool required, bool ok, char *detail, char *hint);

// GPUs, for libckptfs_cuda: what there is. A machine without one is as it should be.
void ckpt_doctor_device(struct ckpt_doctor *d);

// A store in a bucket: the server, the keys, the rights, the bucket, and what stands at the URL. Leaves nothing there. options: as of
// core/objects/stack.h. Blocks on the network.
int ckpt_doctor_remote(struct ckpt_doctor *d, const char *url, const char *const *options);
// Opens what is there. Asks nobody.
int ckpt_doctor_open(const char *url, const char *const *options, struct ckpt_objects **ret_objects);
// The rights that nodes need there, and rules for the bucket, as one JSON document on stdout. Asks nobody.
int ckpt_doctor_policy(const char *url, const char *const *options);
