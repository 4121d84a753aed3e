// The element-by-element part of the executor vocabulary: derive, continue, ramp, fill. Plain
// functions over memory of any alignment, used by the CPU executor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/exec/task.h"

namespace cpshard {

void RunDerive(const DeriveTask& task);

// Writes `count` times the element.
void FillElements(std::byte* dest, Element element, int64_t item_size, int64_t count);

// dest[i * inner + e] = last[e] + (start + i), computed in `dtype`: integers wrap, a floating
// offset is rounded to the dtype before it is added (contract 2.3).
void ContinueElements(std::byte* dest, const std::byte* last, DType dtype, int64_t start,
                      int64_t length, int64_t inner);

// dest[i * inner + e] = start + step * i, converted to `dtype`.
void RampElements(std::byte* dest, DType dtype, int64_t start, int64_t step, int64_t length,
                  int64_t inner);

}  // namespace cpshard
