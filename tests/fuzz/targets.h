// The fuzz targets: each takes any bytes and returns, or aborts where the product breaks a promise.
// libFuzzer drives them one by one (the preset `fuzz`), fuzz_replay feeds them files in every
// build.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"

namespace cpshard::fuzz {

void BatchFrameTarget(absl::string_view input);      // how to cut it, then a BatchFrame on the wire
void IndexMapTarget(absl::string_view input);        // an encoding of runs
void LayoutsTarget(absl::string_view input);         // layouts.json
void OptionsTarget(absl::string_view input);         // options as JSON
void RequestTarget(absl::string_view input);         // a ShardBatchRequest on the wire
void SafetensorsTarget(absl::string_view input);     // a safetensors file
void SessionMessageTarget(absl::string_view input);  // which, then a message of a session
void ShardFrameTarget(absl::string_view input);      // how to cut it, then a ShardFrame on the wire

using Target = void (*)(absl::string_view input);

// By the name of its folders under corpus/ and regressions/; nullptr for a name that is none.
Target FindTarget(const std::string& name);

// Must(condition, "what"): a promise of the product.
inline void Must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: broken promise: %s\n", what);
  std::abort();
}

}  // namespace cpshard::fuzz
