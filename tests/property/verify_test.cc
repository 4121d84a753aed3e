// `cpshard verify` over every layout: it finds what was planted, where it was planted, and nothing
// else.
#include "client/verify/verify.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/safetensors.h"
#include "client/verify/report.h"
#include "core/exec/shard.h"
#include "tests/property/layout_cases.h"
#include "tests/property/samples.h"

namespace cpshard::property {

void PrintTo(const LayoutCase& layout, std::ostream* out) { *out << layout.name; }

namespace {

using verify::Findings;
using verify::StreamFinding;
using verify::Verdict;

class Verified : public testing::TestWithParam<LayoutCase> {
 protected:
  Verified() : dir_(absl::StrCat(testing::TempDir(), "/verified-", GetParam().name)) {}
  ~Verified() override { std::filesystem::remove_all(dir_); }

  // Calls `visit` with shards of a batch that the layout accepts: some at least.
  template <typename Visit>
  void VisitAccepted(Visit visit) {
    int64_t accepted = 0;
    for (int64_t cp_size = 0; cp_size <= 4; ++cp_size) {
      for (const int64_t length : {0, 3, 12, 31}) {
        for (int64_t rows = 1; rows <= 2; ++rows) {
          Point point{.length = length, .rows = rows};
          if (cp_size > 0) point.cp_size = cp_size;
          point_ = GetParam().NearestPoint(point);
          Rng rng((cp_size * 32 + length) * 4 + rows);
          Sample sample = GetParam().Draw(point_, rng);
          GetParam().Fit(sample);
          batch_ = ToProduct(sample);
          sharder_ = GetParam().SharderFor(sample, point_);
          auto made =
              ShardBatch(*sharder_, batch_, point_.cp_size, {}, Limits(), *executor_, pool_);
          if (!made.ok() || HasFailure()) continue;
          ++accepted;
          std::vector<Batch> shards;
          for (RankShard& shard : made->shards) shards.push_back(std::move(shard.batch));
          SCOPED_TRACE(Describe(sample, point_));
          visit(shards, rng);
        }
      }
    }
    EXPECT_GT(accepted, 8);
  }

  Findings Compare(const std::vector<Batch>& shards) {
    std::filesystem::create_directories(dir_);
    for (size_t rank = 0; rank < shards.size(); ++rank) {
      const std::string path = absl::StrCat(dir_, "/rank", rank, ".safetensors");
      EXPECT_TRUE(WriteSafetensors(path, shards[rank].tensors, {}).ok());
    }
    const verify::Request request{.cp_size = point_.cp_size, .dir = dir_};
    absl::StatusOr<Findings> findings =
        verify::Verify(batch_, *sharder_, request, *executor_, pool_);
    std::filesystem::remove_all(dir_);
    EXPECT_TRUE(findings.ok()) << findings.status();
    return findings.ok() ? *std::move(findings) : Findings();
  }

  // A copy with one element changed.
  Tensor WithOtherElement(const Tensor& tensor, int64_t element) {
    Tensor changed{tensor.spec, *pool_.Allocate(tensor.buffer.size())};
    std::memcpy(changed.buffer.data(), tensor.buffer.data(), tensor.buffer.size());
    changed.buffer.data()[element * ItemSize(tensor.spec.dtype)] ^= std::byte{1};
    return changed;
  }

  BufferPool pool_;
  const std::unique_ptr<Executor> executor_ = MakeCpuExecutor();
  const std::string dir_;
  Point point_;
  Batch batch_;
  std::optional<Sharder> sharder_;
};

TEST_P(Verified, RightShardsAreEqual) {
  VisitAccepted([&](const std::vector<Batch>& shards, Rng&) {
    const Findings findings = Compare(shards);
    EXPECT_FALSE(findings.different()) << ToText(findings);
    EXPECT_EQ(findings.streams.size(), shards.front().tensors.size());
  });
}

TEST_P(Verified, OneWrongElementIsFoundWhereItIs) {
  int64_t planted = 0;
  VisitAccepted([&](std::vector<Batch> shards, Rng& rng) {
    const int64_t rank = rng.Below(static_cast<int64_t>(shards.size()));
    const int64_t stream = rng.Below(static_cast<int64_t>(shards[rank].tensors.size()));
    Tensor& tensor = shards[rank].tensors[stream];
    if (NumElements(tensor.spec) == 0) return;
    const int64_t element = rng.Below(NumElements(tensor.spec));
    tensor = WithOtherElement(tensor, element);
    ++planted;
    const Findings findings = Compare(shards);
    for (const StreamFinding& finding : findings.streams) {
      const bool changed = finding.ours.name == tensor.spec.name;
      EXPECT_EQ(finding.verdict, changed ? Verdict::kDifferent : Verdict::kEqual)
          << finding.ours.name;
      if (!changed) continue;
      ASSERT_EQ(finding.differing.size(), 1u);
      EXPECT_EQ(finding.differing[0].rank, rank);
      EXPECT_EQ(finding.differing[0].differing, 1);
      ASSERT_TRUE(finding.first);
      int64_t found = 0;
      for (size_t axis = 0; axis < tensor.spec.dims.size(); ++axis) {
        found = found * tensor.spec.dims[axis] + finding.first->index[axis];
      }
      EXPECT_EQ(found, element) << ToText(findings);
    }
  });
  EXPECT_GT(planted, 8);
}

TEST_P(Verified, RanksThatChangedPlacesDifferInTheStreamsThatTheyDifferIn) {
  VisitAccepted([&](std::vector<Batch> shards, Rng&) {
    if (shards.size() < 2) return;
    std::swap(shards[0], shards[1]);
    const Findings findings = Compare(shards);
    for (const StreamFinding& finding : findings.streams) {
      const Tensor& first = *shards[0].FindTensor(finding.ours.name);
      const Tensor& second = *shards[1].FindTensor(finding.ours.name);
      const bool same = first.spec == second.spec && first.bytes() == second.bytes();
      EXPECT_EQ(finding.verdict, same ? Verdict::kEqual : Verdict::kDifferent) << finding.ours.name;
      if (same || first.spec != second.spec) continue;
      ASSERT_TRUE(finding.cause) << finding.ours.name;
      EXPECT_EQ(finding.cause->text, "ranks 0 and 1 are swapped") << finding.ours.name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, Verified, testing::ValuesIn(LayoutCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cpshard::property
