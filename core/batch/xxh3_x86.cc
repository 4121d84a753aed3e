// For x86-64: the library looks once which vectors the processor has. Without, it stays with the
// base instruction set: half as fast with AVX2 at hand, and worse with AVX-512.
#include <xxh_x86dispatch.h>

#include "core/batch/xxh3.h"

namespace cpshard {

void UpdateXxh3(XXH3_state_t* state, const void* data, size_t size) {
  XXH3_64bits_update_dispatch(state, data, size);
}

}  // namespace cpshard
