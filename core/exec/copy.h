// The copy that bypasses the cache. One file per processor family implements it.
#pragma once

#include <cstddef>

namespace cpshard {

// Copies like memcpy, writing whole cache lines past the cache where the processor can. The ranges
// must not overlap. Other threads may read `dest` after StreamCopyFence() on the writing thread.
void StreamCopy(std::byte* dest, const std::byte* source, size_t size);

// Orders all StreamCopy writes of this thread before what follows.
void StreamCopyFence();

}  // namespace cpshard
