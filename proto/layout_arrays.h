// Large layouts on a stream: their arrays leave the head of the shard for the answer buffer, under
// names that docs/WIRE.md gives. Used inside proto/ only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/exec/shard_body.h"
#include "core/plan/shard_layout.h"
#include "cpshard/v1/service.pb.h"

namespace cpshard {

inline constexpr int64_t kMaxLayoutBytes = int64_t{16} << 10;  // of a layout within a head

// Writes the layouts of one answer. What a rank has in common with the rank before it is in the
// body once.
class LayoutArrays {
 public:
  // Both outlive this object.
  LayoutArrays(ShardBody* body, BufferPool* pool) : body_(*body), pool_(*pool) {}

  // Into shard->layout; arrays of a large layout become pieces of the body and entries of the
  // shard. ResourceExhausted: the pool.
  absl::Status Encode(ShardLayout layout, v1::Shard* shard);

 private:
  struct Written {
    std::vector<int64_t> values;
    int64_t offset = 0;
  };

  absl::Status Move(const char* name, IntArray array, v1::Shard* shard);
  absl::StatusOr<int64_t> Write(const std::vector<int64_t>& values);

  ShardBody& body_;
  BufferPool& pool_;
  std::map<std::string, Written> last_;  // by name
};

// The other direction: takes the arrays out of shard->entries and puts their values, read from the
// answer buffer, into shard->layout. InvalidArgument, naming the array: it is not known, was given
// twice, or is no int64 of the right shape inside the answer.
absl::Status RestoreArrays(const Buffer& answer, v1::Shard* shard);

}  // namespace cpshard
