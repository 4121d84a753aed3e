#include "tests/conformance/backends.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "tests/conformance/index_maps.h"

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

constexpr Backend kBackends[] = {
    {.name = "identity", .layout = IdentityLayout},
    {.name = "contiguous", .layout = ContiguousLayout},
    {.name = "round_robin", .layout = RoundRobinLayout},
    {.name = "round_robin_aux_only", .layout = AuxOnlyLayout},
    {.name = "index_map", .library = ReadIndexMap},
    {.name = "te_index_map", .library = ReadTeIndexMap},
    {.name = "thd_convert", .layout = ThdLayout, .conversion_only = true},
    {.name = "thd_chunks", .layout = ThdLayout, .conversion_only = true},
    {.name = "te_thd", .layout = ThdLayout},
    {.name = "glm_dsa"},
    {.name = "dsv4"},
    {.name = "dsv4_multiple"},
    {.name = "dsv41"},
    {.name = "gemma4"},
    {.name = "kimi_k3"},
    {.name = "kimi_linear"},
    {.name = "blockdiag"},
    {.name = "glm5_next"},
    {.name = "mimo_te"},
    {.name = "qwen3_8_flash_next"},
    {.name = "magi"},
    {.name = "magi_partition"},
    {.name = "magi_layout"},
    {.name = "mtp_inputs"},
    {.name = "in_forward_round_robin"},
    {.name = "in_forward_contiguous"},
    {.name = "shard_token_tensor"},
    {.name = "gather_token_tensor"},
    {.name = "gather_sequence"},
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

absl::StatusOr<LibraryCall> ReadLibraryCall(const Backend& backend, const Input& input) {
  Args args(input.args);
  CPSHARD_ASSIGN_OR_RETURN(LibraryCall call, backend.library(input, args));
  CPSHARD_RETURN_IF_ERROR(args.Finish());
  return call;
}

}  // namespace cpshard::conformance
