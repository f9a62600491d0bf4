// What made a version of a step, as its record says (FORMAT.md).
#pragma once

#define CKPT_EVENT_AMEND "amend"
#define CKPT_EVENT_COOL "cool"
#define CKPT_EVENT_EDIT "edit"
#define CKPT_EVENT_REPACK "repack"
#define CKPT_EVENT_SEAL "seal"
