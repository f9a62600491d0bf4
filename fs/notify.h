// What the mount tells the service manager that started it (systemd: Type=notify), if one did.
//
// Calling sequence: notify_open() once, in the foreground, before any thread exists; then notify() at any time.
// Threads: any. Blocks while the manager's queue is full. Errors: logged, the mount goes on without.
#pragma once

// Without it, or where no manager waits, notify() does nothing: a daemon in the background is not what was started.
void notify_open(void);
// Lines "NAME=VALUE", as sd_notify(3) has them.
__attribute__((format(printf, 1, 2))) void notify(const char *text, ...);
