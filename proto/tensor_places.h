// Where the tensors of a batch lie in its body or batch buffer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/plan/spec.h"

namespace cpshard {

struct TensorPlace {
  int64_t offset = 0;  // bytes from the start, a multiple of 64
  int64_t nbytes = 0;
};

// The order of a batch's tensors in its batch buffer: `first` (what the plan reads), then the
// others, each in ascending order of names, so that plan and digest can follow the arrival. The
// places are in the order of spec.tensors.
std::vector<TensorPlace> PlaceTensors(const BatchSpec& spec, absl::Span<const std::string> first);

}  // namespace cpshard
