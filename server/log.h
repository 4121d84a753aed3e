// Log lines: one JSON object a line on standard error, keys ts, level, msg and the caller's.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace cpshard {

using LogField = std::pair<const char*, std::string>;

// Thread-safe. Values are strings; a key is used once.
void LogInfo(absl::string_view message, std::initializer_list<LogField> fields = {});
void LogError(absl::string_view message, std::initializer_list<LogField> fields = {});

}  // namespace cpshard
