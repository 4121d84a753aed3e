// A process that loses its device, and a look at how it ends.
#pragma once

#include "tests/gpu/item.h"

namespace cpshard {

// Has a warp write to an address that is nobody's, and says on stdout what came of it.
// kDeviceLostExitCode: the launch and a later Run of another executor say that the device is lost,
// and everything was given back. 77: this process cannot have it, since another has it alone, or
// not the memory. Else 1. At most a minute, then SIGALRM.
int LoseDevice();

// This program as such a process: it has to end with kDeviceLostExitCode, and this one's device
// goes on.
Item CheckLost();

}  // namespace cpshard
