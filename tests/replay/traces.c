// The list of traces. Those with a number are the project's first sixteen, T1 to T16.
#include "tests/replay/traces.h"

#include "core/base/util.h"

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

const struct trace traces[] = {
	{"T1", "Orbax", 2, NULL, t1_orbax, NAMES("r/"), "r/100", "orbax", "rename", NULL},
	{"T2", "Orbax, over what a dead job left", 2, NULL, t2_orbax_stale, NAMES("r/"), "r/100", "orbax", "rename",
	 NULL},
	{"T3", "Orbax, partial saving", 1, NULL, t3_orbax_partial, NAMES("r/"), "r/5", "orbax", "rename", NULL},
	{"T4", "torch.distributed.checkpoint", 2, NULL, t4_dcp, NAMES("run/"), "run/step-100", "dcp",
	 "rename:.metadata", NULL},
	{"T5", "Megatron", 2, t5_before, t5_megatron, NAMES("save/", "save/latest_checkpointed_iteration.txt"),
	 "save/iter_0000100", "megatron", "close:metadata.json", "commit_quiet=1s"},
	{"T6", "DeepSpeed", 2, NULL, t6_deepspeed, NAMES("out/", "out/latest", "out/zero_to_fp32.py"),
	 "out/global_step100", "deepspeed", "close:latest", NULL},
	{"T7", "safetensors", 2, t7_before, t7_safetensors, NAMES(".tmp*"), NULL, NULL, NULL, NULL},
	{"T8", "HF Trainer", 2, t8_before, t8_hf, NAMES("out/"), "out/checkpoint-500", "hf-trainer",
	 "close:trainer_state.json", NULL},
	{"T9", "numpy's npz, Keras", 1, t9_before, t9_npz, NULL, NULL, NULL, NULL, NULL},
	{"T10", "HDF5", 1, t10_before, t10_hdf5, NULL, NULL, NULL, NULL, NULL},
	{"T11", "numpy's npy", 1, t11_before, t11_numpy, NULL, NULL, NULL, NULL, NULL},
	{"T12", "NeMo", 2, NULL, t12_nemo, NAMES("nemo/", "nemo/*-unfinished", "nemo/*-last*"), "nemo/epoch=1-step=100",
	 "nemo", "unlink:*-unfinished", NULL},
	{"T13", "eFormer", 1, t13_before, t13_eformer, NAMES("e/"), "e/run-100", "eformer", "close:metadata.json",
	 NULL},
	{"T14", "the replicator of multi-tier checkpointing", 2, NULL, t14_mtc,
	 NAMES("t", "local/", "local/*", "*.restore"), NULL, NULL, NULL, NULL},
	{"T15", "zarr 2, ended by the explicit marker", 2, NULL, t15_zarr, NULL, "step_100", "generic", "marker", NULL},
	{"T16", "readers while steps are deleted", 2, t16_before, t16_readers, NAMES("r/"), "r/110", "generic",
	 "marker", NULL},
	{"torchsnapshot", "torchsnapshot", 2, NULL, torchsnapshot, NULL, "step_100", "torchsnapshot",
	 "close:.snapshot_metadata", NULL},
	{"bytecheckpoint", "ByteCheckpoint", 2, NULL, bytecheckpoint,
	 NAMES("b/", "b/latest_checkpointed_iteration.txt"), "b/global_step_100", "bytecheckpoint", "close:tracker",
	 NULL},
	{"accelerate", "accelerate", 2, NULL, accelerate, NAMES("checkpoints/"), "checkpoints/checkpoint_0",
	 "accelerate", "close:random_states_0.pkl", NULL},
};

const size_t trace_count = ARRAY_LEN(traces);
