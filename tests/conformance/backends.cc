#include "tests/conformance/backends.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "tests/conformance/adapt.h"
#include "tests/conformance/compress_multiple.h"
#include "tests/conformance/in_forward.h"
#include "tests/conformance/index_maps.h"
#include "tests/conformance/magi.h"
#include "tests/conformance/state.h"
#include "tests/conformance/token_verbs.h"

namespace cpshard::conformance {
namespace {

absl::StatusOr<Json> IdentityLayout(Args&) { return Json{{"identity", Json::object()}}; }

absl::StatusOr<Json> ContiguousLayout(Args& args) {
  Json layout = Json::object();
  if (const Json* multiple = args.Take("pad_multiple")) layout["pad_multiple"] = *multiple;
  CPSHARD_ASSIGN_OR_RETURN(const bool shard_primary, args.TakeBool("shard_primary", true));
  if (!shard_primary) layout["keep_primary_full"] = true;
  return Json{{"contiguous", std::move(layout)}};
}

absl::StatusOr<Json> RoundRobinLayout(Args&) { return Json{{"round_robin", Json::object()}}; }

absl::StatusOr<Json> AuxOnlyLayout(Args&) {
  return Json{{"round_robin", Json{{"keep_primary_full", true}}}};
}

absl::StatusOr<Json> ThdLayout(Args& args) {
  Json layout = Json::object();
  if (const Json* chunks = args.Take("num_chunks")) layout["num_chunks"] = *chunks;
  return Json{{"thd", std::move(layout)}};
}

// Copies the arguments that are called as the option's fields are.
void CopyArgs(Args& args, std::initializer_list<absl::string_view> names, Json& layout) {
  for (absl::string_view name : names) {
    if (const Json* value = args.Take(name)) layout[std::string(name)] = *value;
  }
}

absl::StatusOr<Json> GlmDsaLayout(Args& args) {
  Json layout = Json::object();
  CopyArgs(args, {"num_chunks"}, layout);
  return Json{{"glm_dsa", std::move(layout)}};
}

absl::StatusOr<Json> DeepseekV4Layout(Args& args) {
  Json layout = Json::object();
  CopyArgs(args, {"pad_multiple"}, layout);
  return Json{{"deepseek_v4", std::move(layout)}};
}

absl::StatusOr<Json> DeepseekV41Layout(Args& args) {
  Json layout = Json::object();
  CopyArgs(args, {"pad_multiple", "packed_alignment"}, layout);
  return Json{{"deepseek_v41", std::move(layout)}};
}

absl::StatusOr<Json> Gemma4Layout(Args&) { return Json{{"gemma4", Json::object()}}; }

absl::StatusOr<Json> KimiK3Layout(Args&) { return Json{{"kimi", Json{{"variant", "K3"}}}}; }

absl::StatusOr<Json> KimiLinearLayout(Args&) { return Json{{"kimi", Json{{"variant", "LINEAR"}}}}; }

// Whether the layout leaves the primary whole; `missing` = the reference's default.
absl::StatusOr<Json> PrimaryLayout(Args& args, absl::string_view name, bool missing) {
  CPSHARD_ASSIGN_OR_RETURN(const bool shard_primary, args.TakeBool("shard_primary", missing));
  return Json{{std::string(name), Json{{"keep_primary_full", !shard_primary}}}};
}

absl::StatusOr<Json> BlockDiagonalLayout(Args& args) {
  return PrimaryLayout(args, "block_diagonal", true);
}

absl::StatusOr<Json> Glm5NextLayout(Args& args) { return PrimaryLayout(args, "glm5_next", false); }

absl::StatusOr<Json> MimoLayout(Args& args) {
  Json layout = Json::object();
  CopyArgs(args, {"num_chunks", "image_token_id", "video_token_id"}, layout);
  return Json{{"mimo", std::move(layout)}};
}

absl::StatusOr<Json> Qwen38Layout(Args& args) {
  Json layout = Json::object();
  CopyArgs(args, {"pad_multiple", "tp_size"}, layout);
  return Json{{"qwen3_8", std::move(layout)}};
}

absl::StatusOr<Json> MagiLayout(Args& args) {
  Json layout = Json::object();
  for (absl::string_view name : {"variant", "domain"}) {
    const Json* value = args.Take(name);
    if (value == nullptr) continue;
    if (!value->is_string()) {
      return absl::InvalidArgumentError(absl::StrCat("args.", name, " must be a string"));
    }
    layout[std::string(name)] = absl::AsciiStrToUpper(value->get<std::string>());
  }
  return Json{{"magi", std::move(layout)}};
}

// The targets beside a batch that is not cut.
absl::StatusOr<Json> TargetsLayout(Args& args) {
  Json targets = Json::object();
  CopyArgs(args, {"num_depths", "ignore_index"}, targets);
  return Json{{"identity", Json::object()}, {"targets", std::move(targets)}};
}

constexpr Backend kBackends[] = {
    {.name = "identity", .layout = IdentityLayout},
    {.name = "contiguous", .layout = ContiguousLayout},
    {.name = "round_robin", .layout = RoundRobinLayout},
    {.name = "round_robin_aux_only", .layout = AuxOnlyLayout},
    {.name = "index_map", .library = ReadIndexMap},
    {.name = "te_index_map", .library = ReadTeIndexMap},
    {.name = "thd_convert", .layout = ThdLayout, .no_mesh = true, .adapt = KeepConversion},
    {.name = "thd_chunks", .layout = ThdLayout, .no_mesh = true, .adapt = KeepConversion},
    {.name = "te_thd", .layout = ThdLayout},
    {.name = "glm_dsa", .layout = GlmDsaLayout},
    {.name = "dsv4", .layout = DeepseekV4Layout},
    {.name = "dsv4_multiple", .library = ReadCompressMultiple},
    {.name = "dsv41", .layout = DeepseekV41Layout},
    {.name = "gemma4", .layout = Gemma4Layout},
    {.name = "kimi_k3", .layout = KimiK3Layout},
    {.name = "kimi_linear", .layout = KimiLinearLayout},
    {.name = "blockdiag", .layout = BlockDiagonalLayout, .add_state = AddBlockDiagonalState},
    {.name = "glm5_next", .layout = Glm5NextLayout},
    {.name = "mimo_te", .layout = MimoLayout},
    {.name = "qwen3_8_flash_next", .layout = Qwen38Layout},
    {.name = "magi", .layout = MagiLayout, .add_state = AddMagiState},
    {.name = "magi_partition", .library = ReadMagiPartition},
    {.name = "magi_layout", .library = ReadMagiLayout},
    {.name = "mtp_inputs", .layout = TargetsLayout, .no_mesh = true, .adapt = KeepTargets},
    {.name = "in_forward_round_robin", .library = ReadInForwardRoundRobin},
    {.name = "in_forward_contiguous", .library = ReadInForwardContiguous},
    {.name = "shard_token_tensor", .library = ReadShardToken},
    {.name = "gather_token_tensor", .library = ReadGatherToken},
    {.name = "gather_sequence", .library = ReadGatherSequence},
    {.name = "gather_multi_rank"},
    {.name = "vision_frames"},
    {.name = "vision_bounds"},
    {.name = "mamba_reorder"},
    {.name = "resolution"},
};

// The pad of an extra stream: integers and bools as int_pad, floats as float_pad.
absl::Status AddPad(const Json& pad, absl::string_view stream, Json& extra) {
  if (pad.is_null()) return absl::OkStatus();
  if (pad.is_boolean()) {
    extra["int_pad"] = pad.get<bool>() ? 1 : 0;
  } else if (pad.is_number_integer()) {
    extra["int_pad"] = pad;
  } else if (ReadDouble(pad)) {
    extra["float_pad"] = pad;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("pad of extra stream '", stream, "' must be a number or a bool"));
  }
  return absl::OkStatus();
}

// `extra_seq_keys` or `extra_seq_buffers` (stream -> axis) with `extra_pad_values` (stream -> pad).
// A pad of a stream that is not declared has no meaning in the reference either.
absl::StatusOr<Json> TakeExtras(Args& args) {
  Json extras = Json::array();
  const Json* pads = args.Take("extra_pad_values");
  for (absl::string_view key : {"extra_seq_keys", "extra_seq_buffers"}) {
    const Json* axes = args.Take(key);
    if (axes == nullptr) continue;
    if (!axes->is_object()) {
      return absl::InvalidArgumentError(absl::StrCat("args.", key, " must map names to axes"));
    }
    for (const auto& [name, axis] : axes->items()) {
      Json extra{{"name", name}, {"seq_axis", axis}};
      const Json* pad = pads == nullptr ? nullptr : Find(*pads, name);
      if (pad != nullptr) CPSHARD_RETURN_IF_ERROR(AddPad(*pad, name, extra));
      extras.push_back(std::move(extra));
    }
  }
  return extras;
}

}  // namespace

const Json* Args::Take(absl::string_view key) {
  taken_.insert(std::string(key));
  return Find(object_, key);
}

absl::StatusOr<bool> Args::TakeBool(absl::string_view key, bool missing) {
  const Json* value = Take(key);
  if (value == nullptr) return missing;
  if (!value->is_boolean()) {
    return absl::InvalidArgumentError(absl::StrCat("args.", key, " must be a bool"));
  }
  return value->get<bool>();
}

absl::StatusOr<int64_t> Args::TakeInt(absl::string_view key) {
  const Json* value = Take(key);
  const std::optional<int64_t> number = value == nullptr ? std::nullopt : ReadInt64(*value);
  if (!number) return absl::InvalidArgumentError(absl::StrCat("args.", key, " must be an integer"));
  return *number;
}

absl::StatusOr<std::optional<Number>> Args::TakeNumber(absl::string_view key) {
  const Json* value = Take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return Number(int64_t{value->get<bool>() ? 1 : 0});
  if (const std::optional<int64_t> integer = ReadInt64(*value)) return Number(*integer);
  if (const std::optional<double> real = ReadDouble(*value)) return Number(*real);
  return absl::InvalidArgumentError(absl::StrCat("args.", key, " must be a number or a bool"));
}

absl::Status Args::Finish() const {
  for (const auto& [key, value] : object_.items()) {
    if (taken_.count(key) == 0) {
      return absl::InvalidArgumentError(absl::StrCat("args.", key, ": unknown argument"));
    }
  }
  return absl::OkStatus();
}

const Backend* FindBackend(absl::string_view name) {
  for (const Backend& backend : kBackends) {
    if (backend.name == name) return &backend;
  }
  return nullptr;
}

absl::StatusOr<ShardArgs> ReadShardArgs(const Backend& backend, const Json& object) {
  Args args(object);
  CPSHARD_ASSIGN_OR_RETURN(Json options, backend.layout(args));
  const Json* pad_id = args.Take("padding_token_id");
  if (pad_id != nullptr) options["padding_token_id"] = *pad_id;
  if (!args.Has("padding_token_id")) options["padding_token_id"] = 0;
  if (const Json* length = args.Take("min_padded_len")) options["min_padded_len"] = *length;
  CPSHARD_ASSIGN_OR_RETURN(Json extras, TakeExtras(args));
  if (!extras.empty()) options["extra_streams"] = std::move(extras);
  ShardArgs result;
  CPSHARD_ASSIGN_OR_RETURN(result.wants_gradient, args.TakeBool("primary_requires_grad", false));
  // Hidden collectives of the reference: there is no option for them (contract D14).
  args.Take("sync_packed_length");
  args.Take("peer_max_length");
  CPSHARD_RETURN_IF_ERROR(args.Finish());
  result.options = options.dump();
  return result;
}

absl::Status CheckExpandable(absl::string_view what, int64_t columns, int64_t ranks) {
  constexpr int64_t kMaxRanks = 4096;
  constexpr int64_t kMaxColumns = int64_t{1} << 24;  // of all ranks together
  if (ranks >= 1 && ranks <= kMaxRanks && columns <= kMaxColumns / ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("args.", what, " ", columns, " and cp_size ",
                                                 ranks, " are beyond what this runner expands"));
}

absl::StatusOr<LibraryCall> ReadLibraryCall(const Backend& backend, const Input& input) {
  Args args(input.args);
  CPSHARD_ASSIGN_OR_RETURN(LibraryCall call, backend.library(input, args));
  CPSHARD_RETURN_IF_ERROR(args.Finish());
  return call;
}

}  // namespace cpshard::conformance
