// The inner loop of the digest: which of two files is linked decides what it may use.
#pragma once

#include <xxhash.h>

#include <cstddef>

namespace cpshard {

// XXH3_64bits_update, with the widest vectors that the processor has. The hash is the same.
void UpdateXxh3(XXH3_state_t* state, const void* data, size_t size);

}  // namespace cpshard
