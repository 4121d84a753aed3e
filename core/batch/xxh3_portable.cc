#include "core/batch/xxh3.h"

namespace cpshard {

void UpdateXxh3(XXH3_state_t* state, const void* data, size_t size) {
  XXH3_64bits_update(state, data, size);
}

}  // namespace cpshard
