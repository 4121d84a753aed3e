// ShardingOptions as the rest of the program sees them: one opaque value that knows its JSON form
// and its layout. This is the only place that looks into the oneof.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/plan/sharder.h"

namespace cpshard {

namespace v1 {
class ShardingOptions;
}  // namespace v1

class Options {
 public:
  // No layout chosen, nothing given: MakeSharder refuses it.
  Options();
  explicit Options(const v1::ShardingOptions& message);
  Options(const Options& other);
  Options(Options&&) noexcept;
  Options& operator=(Options other);
  ~Options();

  // From protobuf's JSON mapping with the field names of options.proto, e.g.
  //   {"round_robin": {"keep_primary_full": true}, "padding_token_id": 7}
  // InvalidArgument, with the parser's reason: not JSON, an unknown field or enum value, two
  // layouts, a wrong type, a number out of range.
  static absl::StatusOr<Options> FromJson(absl::string_view json);

  // At least so many columns for padded rows: of layouts that take it (contract D14).
  void RaiseMinPaddedLen(int64_t columns);

  // Gives the options a padding_token_id if they have none.
  void SetDefaultPaddingTokenId(int64_t id);

  std::string ToJson() const;

  // The serialised message, the same bytes for the same options.
  // InvalidArgument: no message; a field or an enum value this build does not know.
  static absl::StatusOr<Options> FromBytes(absl::string_view bytes);
  std::string ToBytes() const;

  // The layout that the options name.
  // InvalidArgument: no layout; a field or an enum value this build does not know.
  // Unimplemented: a layout or stage that is part of the wire but not built yet; the message lists
  // the ones that are.
  absl::StatusOr<Sharder> MakeSharder() const;

  // Names of the layouts that MakeSharder can make, in the order of the wire.
  static std::vector<std::string> BuiltLayouts();

  const v1::ShardingOptions& message() const { return *message_; }

 private:
  std::unique_ptr<v1::ShardingOptions> message_;
};

}  // namespace cpshard
