// The traces' functions, by file, and what they share.
#pragma once

#include "tests/replay/trace.h"

#include <fcntl.h>

#define KIB 1024
#define MIB (1024 * 1024)

// orbax.c
void t1_orbax(int rank);
void t2_orbax_stale(int rank);
void t3_orbax_partial(int rank);
// torch.c
void t4_dcp(int rank);
void t5_before(void);
void t5_megatron(int rank);
void t6_deepspeed(int rank);
void t8_before(void);
void t8_hf(int rank);
// files.c
void t7_before(void);
void t7_safetensors(int rank);
void t9_before(void);
void t9_npz(int rank);
void t10_before(void);
void t10_hdf5(int rank);
void t11_before(void);
void t11_numpy(int rank);
// names.c
void t12_nemo(int rank);
void t14_mtc(int rank);
void t16_before(void);
void t16_readers(int rank);
// zarr.c
void t13_before(void);
void t13_eformer(int rank);
void t15_zarr(int rank);
// others.c
void torchsnapshot(int rank);
void bytecheckpoint(int rank);
void accelerate(int rank);

// TensorStore's file driver puts folder/name: it locks, writes and renames name.__lock, which is open all the time.
void put_locked(const char *folder, const char *name, size_t bytes);
// safetensors' serialize_file: a temporary file of its own in folder, the whole size at once, renamed while it is open.
void put_safetensors(const char *folder, const char *name, size_t bytes);
