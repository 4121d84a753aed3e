// The numbers of CUDA's errors, as the toolkit has them.
#pragma once

#include <string>

namespace cpshard {

int NumberOfCudaError(const std::string& name);  // "IllegalAddress"

}  // namespace cpshard
