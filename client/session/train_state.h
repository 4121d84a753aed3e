// What a checkpoint says of the options that batches are sharded with.
#pragma once

#include <string>

#include "proto/options.h"

namespace cpshard {

// 16 hexadecimal digits; the same for the same options.
std::string HashOf(const Options& options);

}  // namespace cpshard
