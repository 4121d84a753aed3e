#include "proto/field_checks.h"

#include <google/protobuf/stubs/common.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace cpshard {

void FieldChecks::Name(absl::string_view field, absl::string_view value) {
  if (!value.empty()) return NameOrNone(field, value);
  Fail(absl::StrCat(field, " is empty; it is a name of 1 to ", kMaxNameBytes, " bytes"));
}

void FieldChecks::NameOrNone(absl::string_view field, absl::string_view value) {
  using google::protobuf::internal::IsStructurallyValidUTF8;
  const auto size = static_cast<int64_t>(value.size());
  if (size > kMaxNameBytes) {
    return Fail(absl::StrCat(field, " has ", size, " bytes, over the ", kMaxNameBytes,
                             " of a name: '", absl::CHexEscape(value.substr(0, kMaxNameBytes)),
                             "...'"));
  }
  if (IsStructurallyValidUTF8(value.data(), static_cast<int>(size))) return;
  Fail(absl::StrCat(field, " is not UTF-8: '", absl::CHexEscape(value), "'"));
}

void FieldChecks::Number(absl::string_view field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return;
  Fail(absl::StrCat(field, " is ", value, "; it is at least ", min, " and at most ", max));
}

void FieldChecks::Size(absl::string_view field, size_t size, int64_t max) {
  if (size <= static_cast<size_t>(max)) return;
  Fail(absl::StrCat(field, " has ", size, ", over the limit of ", max));
}

void FieldChecks::Address(const StepAddress& at) {
  Name("at.stream", at.stream);
  Number("at.pass", at.pass);
  Number("at.step", at.step);
}

void FieldChecks::Part(const absl::Status& status) {
  if (!status.ok()) Fail(status.message());
}

void FieldChecks::Fail(absl::string_view text) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(message_, ": ", text));
}

}  // namespace cpshard
