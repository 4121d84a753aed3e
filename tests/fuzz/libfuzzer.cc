// libFuzzer's entry point for the one target that CPSHARD_FUZZ_TARGET names.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const cpshard::fuzz::Target target = cpshard::fuzz::FindTarget(CPSHARD_FUZZ_TARGET);
  target({reinterpret_cast<const char*>(data), size});
  return 0;
}
