#include "client/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

class SafetensorsTest : public ::testing::Test {
 protected:
  std::string Path() const {
    return absl::StrCat(::testing::TempDir(), "/",
                        ::testing::UnitTest::GetInstance()->current_test_info()->name(),
                        ".safetensors");
  }

  // A file from a header's text and its body, as any program could have written it.
  void Write(const std::string& header, const std::string& body) {
    std::ofstream file(Path(), std::ios::binary);
    const uint64_t size = header.size();
    file.write(reinterpret_cast<const char*>(&size), 8);
    file << header << body;
  }

  absl::Status ReadStatus() { return SafetensorsFile::Open(Path()).status(); }

  ~SafetensorsTest() override { std::remove(Path().c_str()); }

  BufferPool pool_;
};

TEST_F(SafetensorsTest, ReadsAFileWrittenByHand) {
  Write(R"({"a":{"dtype":"I16","shape":[2],"data_offsets":[0,4]},)"
        R"("b":{"dtype":"BF16","shape":[],"data_offsets":[4,6]},)"
        R"("z":{"dtype":"F64","shape":[0,3],"data_offsets":[6,6]},)"
        R"("__metadata__":{"format":"pt","qkv_format":"thd","n":"-12","t":"true","s":"007"}})",
        std::string("\x01\x00\xff\xff\x80\x3f", 6));
  const auto batch = ReadBatch(Path(), Limits(), pool_);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(ViewValues(*batch->FindTensor("a")).ToVector(), (std::vector<int64_t>{1, -1}));
  EXPECT_EQ(batch->FindTensor("b")->spec, (TensorSpec{"b", DType::kBF16, {}}));
  EXPECT_EQ(batch->FindTensor("z")->buffer.size(), 0u);
  const std::vector<ScalarEntry> scalars = {
      {"n", int64_t{-12}}, {"qkv_format", "thd"}, {"s", "007"}, {"t", true}};
  EXPECT_EQ(batch->scalars, scalars);
}

TEST_F(SafetensorsTest, WhatIsWrittenIsReadBackAligned) {
  Tensor bytes{{"bytes", DType::kU8, {3}}, *pool_.Allocate(3)};
  std::memcpy(bytes.buffer.data(), "abc", 3);
  Tensor longs{{"longs", DType::kI64, {1}}, *pool_.Allocate(8)};
  const int64_t value = int64_t{1} << 40;
  std::memcpy(longs.buffer.data(), &value, 8);
  ASSERT_TRUE(WriteSafetensors(Path(), {bytes, longs}, {{"k", "v"}}).ok());
  std::ifstream file(Path(), std::ios::binary);
  uint64_t header_size = 0;
  file.read(reinterpret_cast<char*>(&header_size), 8);
  EXPECT_EQ((header_size + 8) % 64, 0u);

  auto back = SafetensorsFile::Open(Path());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->metadata(), (std::map<std::string, std::string>{{"k", "v"}}));
  const std::vector<Tensor> tensors = *back->ReadAll(pool_);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].spec, longs.spec);  // eight-byte elements come first
  EXPECT_EQ(tensors[0].bytes(), longs.bytes());
  EXPECT_EQ(tensors[1].bytes(), bytes.bytes());
  EXPECT_EQ(back->Read(1, pool_)->bytes(), bytes.bytes());
}

TEST_F(SafetensorsTest, ScalarsSurviveAsMetadata) {
  const std::vector<ScalarEntry> scalars = {
      {"a", int64_t{-9223372036854775807}}, {"b", false}, {"c", "thd"}, {"d", ""}};
  EXPECT_EQ(ScalarsFromMetadata(ScalarsToMetadata(scalars)), scalars);
}

TEST_F(SafetensorsTest, ACorruptFileIsRefusedWithTheReason) {
  const std::string good = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  struct Case {
    std::string header, body;
    const char* why;
  };
  const Case cases[] = {
      {good, "abc", "truncated"},
      {good, "abcde", "the file has 5"},
      {"[]", "", "not a JSON object"},
      {"{", "", "not JSON"},
      {R"({"a":3})", "", "'a'"},
      {R"({"a":{"dtype":"U8","shape":[4]}})", "abcd", "data_offsets"},
      {R"({"a":{"dtype":"U16","shape":[2],"data_offsets":[0,4]}})", "abcd", "U16"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,4]}})", "abcd", "has 3 bytes"},
      {R"({"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})", "abcd", "'a'"},
      {R"({"a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}})", "abcd", "'a'"},
      {R"({"a":{"dtype":"I64","shape":[4611686018427387904,8],"data_offsets":[0,4]}})", "abcd",
       "beyond 64 bits"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", "abcd", "expected 0"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
       "abcdef", "expected 4"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       "abcd", "twice"},
      {R"({"__metadata__":{"k":3}})", "", "__metadata__"},
  };
  for (const Case& c : cases) {
    Write(c.header, c.body);
    const absl::Status status = ReadStatus();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.header;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.why)) << c.header;
  }
}

TEST_F(SafetensorsTest, AHeaderLongerThanTheFileIsRefusedBeforeItIsAllocated) {
  std::ofstream(Path(), std::ios::binary) << std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
  EXPECT_EQ(ReadStatus().code(), absl::StatusCode::kInvalidArgument);
  std::ofstream(Path(), std::ios::binary) << "short";
  EXPECT_EQ(ReadStatus().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SafetensorsTest, ABatchOverTheLimitIsRefusedBeforeItsBytesAreRead) {
  Write(R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}})", "abcde");
  Limits limits;
  limits.max_batch_bytes = 4;
  EXPECT_EQ(ReadBatch(Path(), limits, pool_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pool_.stats().buffers_out + pool_.stats().bytes_idle, 0u);
}

TEST_F(SafetensorsTest, AnAbsentFileAndAFolderAreNotFound) {
  EXPECT_EQ(ReadStatus().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::Open(::testing::TempDir()).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace cpshard
