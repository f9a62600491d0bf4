// Events: the causes of versions, as records say them (FORMAT.md).
#pragma once

#define CKPT_EVENT_AMEND "amend"
#define CKPT_EVENT_COOL "cool"
#define CKPT_EVENT_EDIT "edit"
#define CKPT_EVENT_REPACK "repack"
#define CKPT_EVENT_RESTORE "restore"
#define CKPT_EVENT_SEAL "seal"
