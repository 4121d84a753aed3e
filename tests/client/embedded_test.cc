// The C interface of libcpshard.so, as a program in C meets it: bytes of messages, pointers, codes.
// The library brings the messages' code, so none of it may be in this program; requests are spelled
// out here. What shards hold is for tests/python/test_embedded_golden.py.
#include "client/embedded/cpshard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kInvalidArgument = 3, kNotFound = 5, kFailedPrecondition = 9;
constexpr int kI64 = 6;  // cpshard.v1.DType

// --- protobuf's wire format, as far as requests need it ---

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string Number(int field, uint64_t value) { return Varint(field << 3) + Varint(value); }

std::string Bytes(int field, const std::string& bytes) {
  return Varint(field << 3 | 2) + Varint(bytes.size()) + bytes;
}

std::string TensorEntry(const std::string& name, const std::vector<int64_t>& dims) {
  std::string packed;
  for (int64_t dim : dims) packed += Varint(static_cast<uint64_t>(dim));
  return Bytes(4, Bytes(1, name) + Number(2, kI64) + Bytes(3, packed));
}

// --- the calls, with what they return in hands that free it ---

struct Answer {
  int code = -1;
  std::string error;
};

std::string Taken(cpshard_bytes bytes) {
  std::string copy(static_cast<const char*>(bytes.data), bytes.size);
  cpshard_free(bytes.data);
  return copy;
}

std::vector<int64_t> Ints(const std::string& bytes) {
  std::vector<int64_t> ints(bytes.size() / sizeof(int64_t));
  std::memcpy(ints.data(), bytes.data(), bytes.size());
  return ints;
}

template <typename Function, typename... Arguments>
Answer Call(Function function, Arguments... arguments) {
  char* error = nullptr;
  Answer answer;
  answer.code = function(arguments..., &error);
  if (error != nullptr) answer.error = error;
  cpshard_free(error);
  EXPECT_EQ(answer.code == 0, answer.error.empty());
  return answer;
}

std::string OptionsOf(const std::string& json) {
  cpshard_bytes message{};
  EXPECT_EQ(Call(cpshard_options_from_json, json.data(), json.size(), &message).code, 0);
  return Taken(message);
}

struct FreePlan {
  void operator()(cpshard_plan* plan) const { cpshard_plan_free(plan); }
};
using Plan = std::unique_ptr<cpshard_plan, FreePlan>;

Answer Create(const std::string& request, const std::vector<const void*>& tensors, Plan* plan) {
  cpshard_plan* made = nullptr;
  Answer answer = Call(cpshard_plan_create, request.data(), request.size(), tensors.data(),
                       tensors.size(), &made);
  EXPECT_EQ(answer.code == 0, made != nullptr);
  plan->reset(made);
  return answer;
}

// input_ids 1 ... 12 and labels 101 ... 112, [2, 6], contiguous over two ranks with columns padded
// to 8: rank 0 has 0 ... 3, rank 1 has 4, 5 and two of padding.
class EmbeddedTest : public ::testing::Test {
 protected:
  EmbeddedTest() {
    std::iota(ids_.begin(), ids_.end(), 1);
    std::iota(labels_.begin(), labels_.end(), 101);
    request_ =
        Bytes(1, OptionsOf(R"({"contiguous": {"pad_multiple": 4}, "padding_token_id": 7})")) +
        Number(2, 2) + TensorEntry("input_ids", {2, 6}) + TensorEntry("labels", {2, 6});
  }

  Plan Planned(bool with_ids = true) {
    Plan plan;
    const Answer answer =
        Create(request_, {with_ids ? ids_.data() : nullptr, labels_.data()}, &plan);
    EXPECT_EQ(answer.code, 0) << answer.error;
    return plan;
  }

  Answer Write(const Plan& plan, const std::vector<int64_t>& ranks,
               const std::vector<void*>& dests) {
    return Call(cpshard_plan_write, plan.get(), ranks.data(), ranks.size(), dests.data(),
                dests.size());
  }

  // Index of a stream in a shard.
  size_t At(const Plan& plan, const std::string& name) {
    cpshard_stream stream{};
    for (size_t index = 0; Call(cpshard_plan_stream, plan.get(), index, &stream).code == 0;
         ++index) {
      if (stream.name == name) return index;
    }
    ADD_FAILURE() << name;
    return 0;
  }

  size_t Streams(const Plan& plan) {
    cpshard_stream stream{};
    size_t count = 0;
    while (Call(cpshard_plan_stream, plan.get(), count, &stream).code == 0) ++count;
    return count;
  }

  std::vector<int64_t> ids_ = std::vector<int64_t>(12);
  std::vector<int64_t> labels_ = std::vector<int64_t>(12);
  std::string request_;
};

TEST_F(EmbeddedTest, HeaderAndLibraryAreOfOneVersion) {
  EXPECT_EQ(cpshard_abi_version(), CPSHARD_ABI_VERSION);
}

TEST_F(EmbeddedTest, OptionsThatAreNoJsonAreRefusedAndNothingIsWritten) {
  cpshard_bytes message{&message, 77};
  const std::string json = R"({"no_such_layout": {}})";
  const Answer answer = Call(cpshard_options_from_json, json.data(), json.size(), &message);
  EXPECT_EQ(answer.code, kInvalidArgument);
  EXPECT_THAT(answer.error, HasSubstr("no_such_layout"));
  EXPECT_EQ(message.data, &message);
  EXPECT_EQ(message.size, 77u);
}

TEST_F(EmbeddedTest, AnErrorsTextMayBeUnwanted) {
  EXPECT_EQ(cpshard_options_from_json("{", 1, nullptr, nullptr), kInvalidArgument);
}

TEST_F(EmbeddedTest, ShardsAreWrittenWhereTheCallerWants) {
  const Plan plan = Planned();
  std::vector<int64_t> labels0(8, -1), labels1(8, -1);
  const size_t n = Streams(plan), labels = At(plan, "labels");
  std::vector<void*> dests(2 * n, nullptr);  // ranks 1 and 0, in that order; labels alone
  dests[labels] = labels1.data();
  dests[n + labels] = labels0.data();
  ASSERT_EQ(Write(plan, {1, 0}, dests).code, 0);
  EXPECT_THAT(labels0, ElementsAre(101, 102, 103, 104, 107, 108, 109, 110));
  EXPECT_THAT(labels1, ElementsAre(105, 106, -100, -100, 111, 112, -100, -100));
}

TEST_F(EmbeddedTest, AStreamThatIsCutIsWantedByAllRanksOrByNone) {
  const Plan plan = Planned();
  std::vector<int64_t> part(8, -1);
  std::vector<void*> dests(2 * Streams(plan), nullptr);
  dests[At(plan, "labels")] = part.data();
  const Answer answer = Write(plan, {0, 1}, dests);
  EXPECT_EQ(answer.code, kInvalidArgument);
  EXPECT_THAT(answer.error, HasSubstr("'labels' is wanted, but not by rank 1"));
  EXPECT_THAT(part, ::testing::Each(-1));
}

TEST_F(EmbeddedTest, NothingWantedIsNothingWritten) {
  const Plan plan = Planned();
  EXPECT_EQ(Write(plan, {0}, std::vector<void*>(Streams(plan), nullptr)).code, 0);
}

TEST_F(EmbeddedTest, ThereAreAsManyDestinationsAsStreamsOfRanks) {
  const Plan plan = Planned();
  EXPECT_EQ(Write(plan, {0, 1}, std::vector<void*>(Streams(plan), nullptr)).code, kInvalidArgument);
  EXPECT_EQ(Write(plan, {}, {}).code, kInvalidArgument);
}

TEST_F(EmbeddedTest, AStreamWithoutBytesIsPlannedAndCutButNotWritten) {
  const Plan plan = Planned(/*with_ids=*/false);
  const size_t ids = At(plan, "input_ids");
  cpshard_stream stream{};
  ASSERT_EQ(Call(cpshard_plan_stream, plan.get(), ids, &stream).code, 0);
  EXPECT_STREQ(stream.source, "input_ids");
  EXPECT_EQ(stream.writable, 0);
  std::vector<int64_t> part(8);
  std::vector<void*> dests(Streams(plan), nullptr);
  dests[ids] = part.data();
  const Answer answer = Write(plan, {1}, dests);
  EXPECT_EQ(answer.code, kFailedPrecondition);
  EXPECT_THAT(answer.error, HasSubstr("'input_ids'"));

  cpshard_cut cut{};
  cpshard_bytes runs{};
  ASSERT_EQ(Call(cpshard_plan_cut, plan.get(), "input_ids", 1, 0, &cut, &runs).code, 0);
  EXPECT_THAT(Ints(Taken(runs)), ElementsAre(4, 2, -1, 2));
  EXPECT_EQ(cut.fill, 7u);
  EXPECT_EQ(cut.axis, 1);
  EXPECT_EQ(cut.rows, 1);
  EXPECT_THAT(std::vector<int64_t>(cut.dims, cut.dims + cut.num_dims), ElementsAre(2, 6));
}

TEST_F(EmbeddedTest, WhatIsComputedHasNoCut) {
  const Plan plan = Planned();
  cpshard_cut cut{};
  cpshard_bytes runs{};
  EXPECT_EQ(Call(cpshard_plan_cut, plan.get(), "position_ids", 0, 0, &cut, &runs).code,
            kFailedPrecondition);
  EXPECT_EQ(Call(cpshard_plan_cut, plan.get(), "none", 0, 0, &cut, &runs).code, kNotFound);
  EXPECT_EQ(Call(cpshard_plan_cut, plan.get(), "labels", 2, 0, &cut, &runs).code, kInvalidArgument);
  EXPECT_EQ(Call(cpshard_plan_cut, plan.get(), "labels", 0, 1, &cut, &runs).code, kInvalidArgument);
}

TEST_F(EmbeddedTest, ArraysOfALayoutComeRaw) {
  const Plan plan = Planned();
  cpshard_bytes values{};
  ASSERT_EQ(Call(cpshard_plan_array, plan.get(), 1, CPSHARD_RUNS, &values).code, 0);
  EXPECT_THAT(Ints(Taken(values)), ElementsAre(4, 4));
  ASSERT_EQ(Call(cpshard_plan_array, plan.get(), 1, CPSHARD_POSITIONS, &values).code, 0);
  EXPECT_THAT(Ints(Taken(values)), IsEmpty());  // contiguous reports none
  EXPECT_EQ(Call(cpshard_plan_array, plan.get(), 1, 9, &values).code, kInvalidArgument);
  EXPECT_EQ(Call(cpshard_plan_array, plan.get(), 2, CPSHARD_RUNS, &values).code, kInvalidArgument);
}

TEST_F(EmbeddedTest, AMessageHoldsArraysWhereTheyAreAskedFor) {
  const Plan plan = Planned();
  cpshard_bytes without{}, with{};
  ASSERT_EQ(Call(cpshard_plan_shard, plan.get(), 1, 0, &without).code, 0);
  ASSERT_EQ(Call(cpshard_plan_shard, plan.get(), 1, CPSHARD_WITH_ARRAYS, &with).code, 0);
  const std::string run = Bytes(13, Number(1, 4) + Number(2, 4));  // ShardLayout.runs
  EXPECT_THAT(Taken(without), Not(HasSubstr(run)));
  EXPECT_THAT(Taken(with), HasSubstr(run));
}

TEST_F(EmbeddedTest, EachTensorHasAPointer) {
  Plan plan;
  EXPECT_EQ(Create(request_, {ids_.data()}, &plan).code, kInvalidArgument);
  EXPECT_EQ(Create(request_, {ids_.data(), ids_.data(), ids_.data()}, &plan).code,
            kInvalidArgument);
}

TEST_F(EmbeddedTest, ValuesThatALayoutReadsMustBeThere) {
  const std::string request = Bytes(1, OptionsOf(R"({"thd": {}, "padding_token_id": 7})")) +
                              Number(2, 2) + TensorEntry("input_ids", {1, 8}) +
                              TensorEntry("labels", {1, 8}) + TensorEntry("position_ids", {1, 8}) +
                              TensorEntry("seq_lens", {1, 1}) +
                              TensorEntry("seq_lens_padded", {1, 1});
  cpshard_bytes needs{};
  ASSERT_EQ(Call(cpshard_needs, request.data(), request.size(), &needs).code, 0);
  EXPECT_EQ(Taken(needs), Bytes(3, "seq_lens") + Bytes(3, "seq_lens_padded"));
  Plan plan;
  const int64_t length = 8;
  const Answer answer =
      Create(request, {ids_.data(), ids_.data(), ids_.data(), nullptr, &length}, &plan);
  EXPECT_EQ(answer.code, kFailedPrecondition);
  EXPECT_THAT(answer.error, HasSubstr("'seq_lens'"));
}

TEST_F(EmbeddedTest, ADigestIsOfAllBytes) {
  uint64_t digest = 5;
  EXPECT_EQ(Call(cpshard_plan_digest, Planned(/*with_ids=*/false).get(), &digest).code,
            kFailedPrecondition);
  EXPECT_EQ(digest, 5u);
  ASSERT_EQ(Call(cpshard_plan_digest, Planned().get(), &digest).code, 0);
  const uint64_t before = digest;
  ++labels_[11];
  ASSERT_EQ(Call(cpshard_plan_digest, Planned().get(), &digest).code, 0);
  EXPECT_NE(digest, before);
}

TEST_F(EmbeddedTest, LimitsAreThoseOfTheServer) {
  Plan plan;
  const std::string options = Bytes(1, OptionsOf(R"({"identity": {}})"));
  EXPECT_EQ(Create(options + TensorEntry(std::string(129, 'x'), {1}), {nullptr}, &plan).code,
            kInvalidArgument);
  EXPECT_EQ(Create(options + Number(2, 4097), {}, &plan).code, kInvalidArgument);
  EXPECT_EQ(Create(options + TensorEntry("x", {int64_t{1} << 40}), {nullptr}, &plan).code,
            kInvalidArgument);
  std::string many = options;
  for (int i = 0; i < 257; ++i) many += TensorEntry("x" + std::to_string(i), {1});
  EXPECT_EQ(Create(many, std::vector<const void*>(257, nullptr), &plan).code, kInvalidArgument);
}

TEST_F(EmbeddedTest, ARequestThatIsCutShortOrChangedIsPlannedOrRefused) {
  for (size_t at = 0; at < request_.size(); ++at) {
    Plan plan;
    Create(request_.substr(0, at), {ids_.data(), labels_.data()}, &plan);
    std::string changed = request_;
    changed[at] = static_cast<char>(changed[at] ^ 0x15);
    Create(changed, {nullptr, nullptr}, &plan);
  }
}

TEST_F(EmbeddedTest, AFolderThatIsNotThereIsNotCompared) {
  int32_t different = 7;
  const Answer answer = Call(
      cpshard_plan_verify, Planned().get(), "/no/such/folder", static_cast<const int64_t*>(nullptr),
      size_t{0}, static_cast<const char* const*>(nullptr), size_t{0}, &different,
      static_cast<cpshard_bytes*>(nullptr), static_cast<cpshard_bytes*>(nullptr));
  EXPECT_EQ(answer.code, kNotFound);
  EXPECT_EQ(different, 7);
}

TEST_F(EmbeddedTest, AllCallsOnAPlanMayComeAtOnce) {
  const Plan plan = Planned();
  const size_t n = Streams(plan), labels = At(plan, "labels");
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, rank = t % 2] {
      constexpr uint32_t kAll = CPSHARD_WITH_DIGEST | CPSHARD_WITH_TOTALS | CPSHARD_WITH_ARRAYS;
      for (int i = 0; i < 50; ++i) {
        std::vector<int64_t> part(8);
        std::vector<void*> dests(n, nullptr);
        dests[labels] = part.data();
        EXPECT_EQ(Write(plan, {rank}, dests).code, 0);
        EXPECT_EQ(part[0], rank == 0 ? 101 : 105);
        cpshard_bytes shard{}, reply{}, runs{};
        EXPECT_EQ(Call(cpshard_plan_shard, plan.get(), rank, kAll, &shard).code, 0);
        EXPECT_EQ(Call(cpshard_plan_reply, plan.get(), &rank, size_t{1}, kAll, &reply).code, 0);
        EXPECT_EQ(Call(cpshard_plan_array, plan.get(), rank, CPSHARD_RUNS, &runs).code, 0);
        Taken(shard);
        Taken(reply);
        EXPECT_THAT(Ints(Taken(runs)), ElementsAre(4 * rank, 4));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
