#include "proto/options.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/plan/status_macros.h"
#include "core/plan/targets.h"
#include "cpshard/v1/options.pb.h"
#include "proto/layout_options.h"
#include "proto/stable_bytes.h"
#include "proto/strict_json.h"

namespace cpshard {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// A field that this build does not know would otherwise be ignored in silence.
absl::Status RefuseUnknownFields(const Message& message) {
  const google::protobuf::Reflection* reflection = message.GetReflection();
  const auto& unknown = reflection->GetUnknownFields(message);
  if (!unknown.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("options: ", message.GetTypeName(), " has the unknown field number ",
                     unknown.field(0).number(), "; is the client newer than the server?"));
  }
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM && !field->is_repeated() &&
        field->enum_type()->FindValueByNumber(reflection->GetEnumValue(message, field)) ==
            nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("options: ", field->full_name(),
                                                     " has the unknown value ",
                                                     reflection->GetEnumValue(message, field)));
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      CPSHARD_RETURN_IF_ERROR(RefuseUnknownFields(
          field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                               : reflection->GetMessage(message, field)));
    }
  }
  return absl::OkStatus();
}

SharedOptions Shared(const v1::ShardingOptions& message) {
  SharedOptions shared;
  if (message.has_padding_token_id()) shared.padding_token_id = message.padding_token_id();
  if (message.has_min_padded_len()) shared.min_padded_len = message.min_padded_len();
  for (const v1::ExtraStream& from : message.extra_streams()) {
    ExtraStream extra{from.name()};
    if (from.has_seq_axis()) extra.seq_axis = from.seq_axis();
    if (from.pad_case() == v1::ExtraStream::kIntPad) extra.pad = int64_t{from.int_pad()};
    if (from.pad_case() == v1::ExtraStream::kFloatPad) extra.pad = from.float_pad();
    shared.extra_streams.push_back(std::move(extra));
  }
  return shared;
}

TargetsOptions Targets(const v1::Targets& message) {
  TargetsOptions options;
  options.num_depths = message.num_depths();
  if (message.has_ignore_index()) options.ignore_index = message.ignore_index();
  return options;
}

absl::Status NotBuilt(absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat(what, " is not built into this version; layouts that are: ",
                   absl::StrJoin(Options::BuiltLayouts(), ", ")));
}

// The name of a layout's field in the oneof.
std::string NameOf(v1::ShardingOptions::LayoutCase option) {
  return v1::ShardingOptions::descriptor()->FindFieldByNumber(option)->name();
}

}  // namespace

Options::Options() : message_(std::make_unique<v1::ShardingOptions>()) {}
Options::Options(const v1::ShardingOptions& message)
    : message_(std::make_unique<v1::ShardingOptions>(message)) {}
Options::Options(const Options& other) : Options(*other.message_) {}
Options::Options(Options&&) noexcept = default;
Options& Options::operator=(Options other) {
  std::swap(message_, other.message_);
  return *this;
}
Options::~Options() = default;

absl::StatusOr<Options> Options::FromJson(absl::string_view json) {
  CPSHARD_RETURN_IF_ERROR(CheckStrictJson(json, "options"));
  Options options;
  const auto status = google::protobuf::util::JsonStringToMessage({json.data(), json.size()},
                                                                  options.message_.get());
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("options: ", std::string(status.message().data(), status.message().size())));
  }
  return options;
}

void Options::RaiseMinPaddedLen(int64_t columns) {
  message_->set_min_padded_len(std::max(message_->min_padded_len(), columns));
}

void Options::SetDefaultPaddingTokenId(int64_t id) {
  if (!message_->has_padding_token_id()) message_->set_padding_token_id(id);
}

std::string Options::ToJson() const {
  google::protobuf::util::JsonPrintOptions print;
  print.preserve_proto_field_names = true;
  std::string json;
  // Cannot fail: the message holds no Any, and its strings are valid.
  (void)google::protobuf::util::MessageToJsonString(*message_, &json, print);
  return json;
}

absl::StatusOr<Options> Options::FromBytes(absl::string_view bytes) {
  Options options;
  if (!options.message_->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("options: ", bytes.size(), " bytes are no ShardingOptions"));
  }
  CPSHARD_RETURN_IF_ERROR(RefuseUnknownFields(*options.message_));
  return options;
}

std::string Options::ToBytes() const { return StableBytes(*message_); }

std::vector<std::string> Options::BuiltLayouts() {
  std::vector<std::string> names;
  for (const LayoutOption& layout : LayoutOptions()) names.push_back(NameOf(layout.option));
  return names;
}

absl::StatusOr<Sharder> Options::MakeSharder() const {
  CPSHARD_RETURN_IF_ERROR(RefuseUnknownFields(*message_));
  const v1::ShardingOptions::LayoutCase chosen = message_->layout_case();
  if (chosen == v1::ShardingOptions::LAYOUT_NOT_SET) {
    return absl::InvalidArgumentError(absl::StrCat("options name no layout; choose one of ",
                                                   absl::StrJoin(BuiltLayouts(), ", "),
                                                   ", for example {\"contiguous\": {}}"));
  }
  for (const LayoutOption& layout : LayoutOptions()) {
    if (layout.option != chosen) continue;
    CPSHARD_ASSIGN_OR_RETURN(Sharder sharder, layout.make(*message_, Shared(*message_)));
    if (!message_->has_targets()) return sharder;
    return WithTargets(std::move(sharder), Targets(message_->targets()));
  }
  return NotBuilt(absl::StrCat("layout ", NameOf(chosen)));
}

}  // namespace cpshard
