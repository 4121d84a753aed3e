// The contract a second time, element by element in plain loops: the oracle of the property tests
// and of `cpshard demo`. It shares no code with core/plan and core/exec and includes nothing of
// them; it is slow, and written to be read beside the contract.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace cpshard::oracle {

// A dense, row-major tensor; little endian; dtype is one of
// bool u8 i8 i16 i32 i64 f16 bf16 f32 f64.
struct Tensor {
  std::string dtype;
  std::vector<int64_t> dims;
  std::vector<uint8_t> bytes;
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

using Batch = std::map<std::string, Tensor>;

// A non-tensor entry.
using Scalar = std::variant<int64_t, std::string>;

// A token-aligned stream that the caller declares.
struct Extra {
  std::string name;
  int64_t seq_axis = 1;
  std::optional<double> pad;  // absent = 0
};

struct Options {
  // "identity", "contiguous", "round_robin", "thd", "gemma4", "kimi_linear", "kimi_k3",
  // "glm5_next", "block_diagonal"
  std::string layout;
  bool keep_primary_full = false;
  int64_t pad_multiple = 1;  // contiguous
  int64_t num_chunks = 1;    // thd
  std::optional<int64_t> padding_token_id;
  std::vector<Extra> extras;
  std::optional<std::string> qkv_format;  // the batch's scalar entry of that name (5.5, D18)
};

// One rank's shard as the contract wants it.
struct Shard {
  Batch outputs;
  std::optional<int64_t> original_seq_len;
  std::optional<int64_t> padded_seq_len;
  // Padded column of every local slot, also of a chunked batch, whose layout the contract does not
  // report: there over the flattened chunks. Empty where nothing is cut.
  std::vector<int64_t> columns;
  std::map<std::string, Scalar> scalars;  // qkv_format, cp_size, cp_rank; fields of records
  std::optional<std::vector<int64_t>> local_token_global_indices;
  std::optional<std::vector<int64_t>> input_row_shape;  // {B, S}
};

// nullopt = the contract (with its decisions D1-D19) refuses the batch. `cp_size` absent = no mesh.
// A stream named loss_mask is the loss-mask argument (D17).
// Precondition: tensors are whole (bytes match dims and dtype) and sizes are small: limits and
// overflow are not part of the contract.
std::optional<Shard> Restate(const Batch& batch, const Options& options,
                             std::optional<int64_t> cp_size, int64_t rank);

}  // namespace cpshard::oracle
