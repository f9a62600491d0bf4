// Mixed work for as long as is wanted: savers that commit by a marker and by a rename, read back, add to steps, change them
// and delete them; what is deleted expires; plain files; a walker. Fails when bytes differ, a call fails, or the daemon
// takes more and more (samples.h).
#pragma once

void soak_run(unsigned seconds);
