#include "proto/options.h"

#include <google/protobuf/util/json_util.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/plan/layouts.h"
#include "core/plan/status_macros.h"
#include "cpshard/v1/options.pb.h"
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

Primary ToPrimary(bool keep_full) { return keep_full ? Primary::kLeaveFull : Primary::kCut; }

absl::Status NotBuilt(absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat(what, " is not built into this version; layouts that are: ",
                   absl::StrJoin(Options::BuiltLayouts(), ", ")));
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

std::vector<std::string> Options::BuiltLayouts() {
  return {"identity", "contiguous", "round_robin", "thd"};
}

absl::StatusOr<Sharder> Options::MakeSharder() const {
  CPSHARD_RETURN_IF_ERROR(RefuseUnknownFields(*message_));
  if (message_->layout_case() == v1::ShardingOptions::LAYOUT_NOT_SET) {
    return absl::InvalidArgumentError(absl::StrCat("options name no layout; choose one of ",
                                                   absl::StrJoin(BuiltLayouts(), ", "),
                                                   ", for example {\"contiguous\": {}}"));
  }
  if (message_->has_targets()) return NotBuilt("the option `targets`");
  SharedOptions shared = Shared(*message_);
  switch (message_->layout_case()) {
    case v1::ShardingOptions::kIdentity:
      return Identity(std::move(shared));
    case v1::ShardingOptions::kContiguous: {
      const v1::Contiguous& from = message_->contiguous();
      ContiguousOptions options;
      if (from.has_pad_multiple()) options.pad_multiple = from.pad_multiple();
      options.primary = ToPrimary(from.keep_primary_full());
      return Contiguous(options, std::move(shared));
    }
    case v1::ShardingOptions::kRoundRobin:
      return RoundRobin({ToPrimary(message_->round_robin().keep_primary_full())},
                        std::move(shared));
    case v1::ShardingOptions::kThd: {
      ThdOptions options;
      if (message_->thd().has_num_chunks()) options.num_chunks = message_->thd().num_chunks();
      return Thd(options, std::move(shared));
    }
    default: {
      const google::protobuf::OneofDescriptor* layout =
          message_->GetDescriptor()->FindOneofByName("layout");
      return NotBuilt(absl::StrCat(
          "layout ",
          message_->GetReflection()->GetOneofFieldDescriptor(*message_, layout)->name()));
    }
  }
}

}  // namespace cpshard
