// The files of DeepSpeed's ranks in a checkpoint. Rank 0 says with `latest` that it is complete, and has not waited for the others
// by then (runtime/engine.py, save_checkpoint(): the barrier comes afterwards). How many there are stands in the model states that
// it has written itself: dp_world_size and mp_world_size, in the pickle (protocol 2 and later) of a torch.save() file.
//
//   mp_rank_MM_model_states.pt                         one for each model parallel rank; with ZeRO stage 3 instead of it
//   zero_pp_rank_D_mp_rank_MM_model_states.pt          one for each rank
//   [bf16_]zero_pp_rank_D_mp_rank_MM_optim_states.pt   one for each rank, with ZeRO
//
// The optimizer's states are begun when all ranks have met again after the model states (the barriers of
// _create_zero_checkpoint_files()): an older one is that of a save before. With mics_shard_size or use_node_local_storage in its
// settings, which stand in the same pickle, some ranks write nothing here, and there is no telling.
//
// Every byte is from outside: what makes no sense says nothing.
// Threads: any. Blocks on the disk.
#pragma once

#include "core/record/name.h"

// dirfd reads the checkpoint's directory; again: it is saved over another, of which files may be left. 0: the files of all ranks
// are there, and whole, or there is no telling how many they are; 1: *ret_name is not there, not whole, or that of a save before;
// -ENOMEM, -EIO ...
int ckpt_ranks_lack(int dirfd, bool again, char ret_name[CKPT_NAME_MAX + 1]);
