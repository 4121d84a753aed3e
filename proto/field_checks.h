// Checks of the fields of one message: the first that fails is what `status` says. Used inside
// proto/ only.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/session_checks.h"

namespace cpshard {

class FieldChecks {
 public:
  // `message` is what the texts call it.
  explicit FieldChecks(std::string message) : message_(std::move(message)) {}

  void Name(absl::string_view field, absl::string_view value);
  void NameOrNone(absl::string_view field, absl::string_view value);
  void Number(absl::string_view field, int64_t value, int64_t min = 0, int64_t max = kMaxNumber);
  // The size of a list or of bytes.
  void Size(absl::string_view field, size_t size, int64_t max);
  void Address(const StepAddress& at);
  void Part(const absl::Status& status);  // of a message in this one
  void Fail(absl::string_view text);

  bool ok() const { return status_.ok(); }

  const absl::Status& status() const { return status_; }

 private:
  std::string message_;
  absl::Status status_;
};

}  // namespace cpshard
