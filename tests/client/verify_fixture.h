// A batch for the tests of verify, and shards of it that faults are planted in. Tokens are 1000 *
// row + 10 + column, so that a value tells where it belongs; all other numbers are worked out by
// hand from
//
//   columns      0 1 2 3 4 5 | 6 7 8 9 10 11 12 13 | 14 15     two documents, then padding
//   round robin  rank 0: 0 ... 3, 12 ... 15    rank 1: 4 ... 11
//   contiguous   rank 0: 0 ... 7               rank 1: 8 ... 15
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/safetensors.h"
#include "client/verify/verify.h"
#include "core/exec/shard.h"
#include "proto/options.h"

namespace cpshard::verify {

inline constexpr int64_t kRows = 2, kColumns = 14, kFirstDocument = 6;
inline constexpr char kRoundRobin[] = R"({"round_robin": {}, "padding_token_id": 7})";
inline constexpr char kContiguous[] = R"({"contiguous": {}, "padding_token_id": 7})";

inline int64_t IdOf(int64_t row, int64_t column) { return 1000 * row + 10 + column; }

inline int64_t PositionOf(int64_t column) {
  return column < kFirstDocument ? column : column - kFirstDocument;
}

inline int64_t LabelOf(int64_t row, int64_t column) {
  const bool ends = column == kFirstDocument - 1 || column == kColumns - 1;
  return ends ? kIgnored : IdOf(row, column + 1);
}

class VerifyTest : public ::testing::Test {
 protected:
  VerifyTest()
      : dir_(absl::StrCat(::testing::TempDir(), "/verify-",
                          ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(dir_);
    Add("input_ids", IdOf);
    Add("labels", LabelOf);
    Add("position_ids", [](int64_t, int64_t column) { return PositionOf(column); });
    Add(
        "padding_mask", [](int64_t, int64_t) { return 0; }, DType::kBool);
  }
  ~VerifyTest() override { std::filesystem::remove_all(dir_); }

  using ValueOf = std::function<int64_t(int64_t row, int64_t column)>;

  Tensor MakeTensor(const std::string& name, DType dtype, std::vector<int64_t> dims,
                    const std::function<int64_t(int64_t)>& value) {
    Tensor tensor{{name, dtype, std::move(dims)}, {}};
    tensor.buffer = *pool_.Allocate(NumBytes(tensor.spec));
    for (int64_t i = 0; i < NumElements(tensor.spec); ++i) Set(tensor, i, value(i));
    return tensor;
  }

  // A stream of the batch, in the place of the one of that name.
  void Add(const std::string& name, const ValueOf& value, DType dtype = DType::kI64) {
    std::erase_if(batch_.tensors, [&](const Tensor& tensor) { return tensor.spec.name == name; });
    batch_.tensors.push_back(MakeTensor(name, dtype, {kRows, kColumns}, [&](int64_t i) {
      return value(i / kColumns, i % kColumns);
    }));
  }

  static void Set(Tensor& tensor, int64_t element, int64_t value) {
    const int64_t item = ItemSize(tensor.spec.dtype);
    std::memcpy(tensor.buffer.data() + element * item, &value, item);
  }

  // Right shards, in memory of their own.
  std::vector<Batch> Shards(const char* options, std::optional<int64_t> cp_size) {
    const Sharder sharder = Options::FromJson(options)->MakeSharder().value();
    auto made = ShardBatch(sharder, batch_, cp_size, {}, Limits(), *executor_, pool_);
    EXPECT_TRUE(made.ok()) << made.status();
    std::vector<Batch> shards;
    for (const RankShard& shard : made->shards) {
      shards.push_back(shard.batch);
      for (Tensor& tensor : shards.back().tensors) {
        const Buffer bytes = tensor.buffer;
        tensor.buffer = *pool_.Allocate(bytes.size());
        if (bytes.size() > 0) std::memcpy(tensor.buffer.data(), bytes.data(), bytes.size());
      }
    }
    return shards;
  }

  static Tensor& Stream(Batch& shard, const std::string& name) {
    for (Tensor& tensor : shard.tensors) {
      if (tensor.spec.name == name) return tensor;
    }
    ADD_FAILURE() << name;
    return shard.tensors.front();
  }

  void WriteRank(int64_t rank, const Batch& shard) {
    std::filesystem::create_directories(dir_);
    const std::string path = absl::StrCat(dir_, "/rank", rank, ".safetensors");
    ASSERT_TRUE(WriteSafetensors(path, shard.tensors, {{"format", "pt"}}).ok());
  }

  void Write(const std::vector<Batch>& shards) {
    for (size_t rank = 0; rank < shards.size(); ++rank) {
      WriteRank(static_cast<int64_t>(rank), shards[rank]);
    }
  }

  absl::StatusOr<Findings> Ask(const char* options, Request request) {
    const Sharder sharder = Options::FromJson(options)->MakeSharder().value();
    request.dir = dir_;
    return Verify(batch_, sharder, request, *executor_, pool_);
  }

  Findings Verified(const char* options, std::optional<int64_t> cp_size = 2) {
    absl::StatusOr<Findings> findings = Ask(options, {.cp_size = cp_size});
    EXPECT_TRUE(findings.ok()) << findings.status();
    return findings.ok() ? *findings : Findings();
  }

  static const StreamFinding& Of(const Findings& findings, const std::string& name) {
    for (const StreamFinding& stream : findings.streams) {
      if (stream.ours.name == name) return stream;
    }
    ADD_FAILURE() << name;
    return findings.streams.front();
  }

  static std::vector<std::string> Unequal(const Findings& findings) {
    std::vector<std::string> names;
    for (const StreamFinding& stream : findings.streams) {
      if (stream.verdict != Verdict::kEqual) names.push_back(stream.ours.name);
    }
    return names;
  }

  static std::string CauseOf(const Findings& findings, const std::string& name) {
    const StreamFinding& stream = Of(findings, name);
    return stream.cause ? absl::StrCat(stream.cause->code, ": ", stream.cause->text) : "none";
  }

  // "expected, found: meaning"
  static std::string FirstOf(const Findings& findings, const std::string& name) {
    const std::optional<FirstDifference>& first = Of(findings, name).first;
    if (!first) return "none";
    return absl::StrCat(first->expected, ", ", first->found, ": ", first->meaning);
  }

  BufferPool pool_;
  std::unique_ptr<Executor> executor_ = MakeCpuExecutor();
  const std::string dir_;
  Batch batch_;
};

}  // namespace cpshard::verify
