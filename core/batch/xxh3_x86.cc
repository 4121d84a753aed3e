// For x86-64: the library looks once which vectors the processor has. Its usual entry stays with
// the base instruction set and took about twice as long (docs/PERFORMANCE.md).
#include <xxh_x86dispatch.h>

#include "core/batch/xxh3.h"

namespace cpshard {

void UpdateXxh3(XXH3_state_t* state, const void* data, size_t size) {
  XXH3_64bits_update_dispatch(state, data, size);
}

}  // namespace cpshard
