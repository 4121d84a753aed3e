#include "proto/json.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/service.pb.h"
#include "proto/codec.h"
#include "proto/session_codec.h"
#include "proto/strict_json.h"

namespace cpshard {
namespace {

std::string Print(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  // Cannot fail: no Any, and strings were checked when they came in.
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  return json;
}

}  // namespace

std::string LayoutsToJson(const std::vector<ShardLayout>& layouts) {
  std::vector<std::string> parts;
  for (const ShardLayout& layout : layouts) {
    v1::ShardLayout message;
    EncodeLayout(layout, &message);
    parts.push_back(Print(message));
  }
  return absl::StrCat("[\n", absl::StrJoin(parts, ",\n"), "\n]\n");
}

absl::StatusOr<std::vector<ShardLayout>> LayoutsFromJson(absl::string_view json) {
  CPSHARD_RETURN_IF_ERROR(CheckStrictJson(json, "layouts"));
  const nlohmann::json array =
      nlohmann::json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  if (!array.is_array()) {
    return absl::InvalidArgumentError("layouts: not a JSON array of ShardLayout");
  }
  std::vector<ShardLayout> layouts;
  for (const nlohmann::json& item : array) {
    v1::ShardLayout message;
    const auto status = google::protobuf::util::JsonStringToMessage(item.dump(), &message);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("layouts: entry ", layouts.size(), ": ",
                       std::string(status.message().data(), status.message().size())));
    }
    CPSHARD_ASSIGN_OR_RETURN(ShardLayout layout, DecodeLayout(message));
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

std::string GroupsToJson(const std::vector<GroupView>& groups) {
  v1::ListGroupsReply message;
  EncodeGroupViews(groups, &message);
  return Print(message);
}

absl::StatusOr<std::string> SummaryToJson(const PlanSummary& summary) {
  v1::PlanLayoutReply message;
  CPSHARD_RETURN_IF_ERROR(EncodePlanLayoutReply(summary, &message));
  return Print(message);
}

}  // namespace cpshard
