// What stands before a function that is compiled for the host and for a device. A .cu file defines
// it before it includes the bodies; every other compiler sees plain inline functions.
#pragma once

#ifndef CPSHARD_BODY
#define CPSHARD_BODY inline
#endif
