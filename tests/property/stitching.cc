#include "tests/property/stitching.h"

#include <algorithm>

#include "core/oracle/tensors.h"
#include "core/oracle/values.h"

namespace cpshard::property {

int64_t ProductOf(const std::vector<int64_t>& dims, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= dims[i];
  return product;
}

std::vector<int64_t> ColumnsOf(const ShardLayout& layout) {
  std::vector<int64_t> columns;
  for (const Run& run : layout.runs) {
    for (int64_t i = 0; i < run.length; ++i) columns.push_back(run.source + i);
  }
  return columns;
}

std::vector<oracle::Shard> ToOracle(const std::vector<RankShard>& shards) {
  std::vector<oracle::Shard> out;
  for (const RankShard& shard : shards) {
    out.emplace_back();
    out.back().columns = ColumnsOf(shard.layout);
    for (const Tensor& tensor : shard.batch.tensors) {
      out.back().outputs[tensor.spec.name] = FromProduct(tensor);
    }
  }
  return out;
}

oracle::Tensor Stitched(const std::vector<oracle::Shard>& shards, const std::string& name, int axis,
                        int64_t length) {
  oracle::Tensor full = shards.front().outputs.at(name);
  const int64_t outer = ProductOf(full.dims, 0, axis);
  const int64_t inner =
      ProductOf(full.dims, axis + 1, full.dims.size()) * ItemSize(*ParseDType(full.dtype));
  full.dims[axis] = length;
  full.bytes.assign(outer * length * inner, 0);
  for (const oracle::Shard& shard : shards) {
    const auto slots = static_cast<int64_t>(shard.columns.size());
    const std::vector<uint8_t>& bytes = shard.outputs.at(name).bytes;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t slot = 0; slot < slots; ++slot) {
        if (shard.columns[slot] >= length) continue;
        std::copy_n(bytes.begin() + (o * slots + slot) * inner, inner,
                    full.bytes.begin() + (o * length + shard.columns[slot]) * inner);
      }
    }
  }
  return full;
}

oracle::Tensor StitchedChunks(std::vector<oracle::Shard> shards, const std::string& name,
                              int64_t length) {
  for (oracle::Shard& shard : shards) {
    std::vector<int64_t>& dims = shard.outputs.at(name).dims;
    dims[1] *= dims[0];
    dims.erase(dims.begin());
  }
  return Stitched(shards, name, 0, length);
}

std::optional<oracle::Tensor> AsSent(const Sample& sample, const std::string& name, int64_t rows) {
  const bool promoted = name == "labels" && !sample.streams.contains("labels");
  const auto sent = sample.streams.find(promoted ? "loss_mask" : name);
  if (sent == sample.streams.end()) return std::nullopt;
  oracle::Tensor stream = sent->second;
  const bool is_shared_row =
      name == "position_ids" && stream.dims.size() == 2 && stream.dims[0] == 1 && rows > 1;
  if (!is_shared_row) return stream;
  stream.dims[0] = rows;
  const std::vector<uint8_t> row = stream.bytes;
  for (int64_t b = 1; b < rows; ++b) {
    stream.bytes.insert(stream.bytes.end(), row.begin(), row.end());
  }
  return stream;
}

oracle::Tensor RowsAsSent(const Sample& sample, const std::string& name, const Point& point) {
  oracle::Tensor stream = sample.streams.at(name);
  const int64_t rest = ProductOf(stream.dims, 2, stream.dims.size());
  stream.dims.resize(2);
  if (rest != 1) stream.dims.push_back(rest);
  const bool keeps_dtype = name == "input_ids" && oracle::IsFloat(stream.dtype);
  return point.num_ranks() == 1 || keeps_dtype ? stream : oracle::AsInt64(stream);
}

}  // namespace cpshard::property
