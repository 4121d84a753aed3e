// The digest against the recipe of batch.h, written out as one byte string and hashed in one call.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/batch/tensors.h"

namespace cpshard {
namespace {

void AppendInt(std::string& text, int64_t value) {
  for (int byte = 0; byte < 8; ++byte) {
    text.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * byte) & 0xff));
  }
}

struct Field {
  std::string name, dtype;
  std::vector<int64_t> dims;
  std::string bytes;
};

uint64_t Recipe(std::vector<Field> fields) {
  std::sort(fields.begin(), fields.end(),
            [](const Field& a, const Field& b) { return a.name < b.name; });
  std::string text;
  for (const Field& field : fields) {
    text += field.name + '\0' + field.dtype + '\0';
    AppendInt(text, static_cast<int64_t>(field.dims.size()));
    for (int64_t dim : field.dims) AppendInt(text, dim);
    text += field.bytes;
  }
  return XXH3_64bits(text.data(), text.size());
}

Tensor TensorOfField(const Field& field) {
  return TensorOf<char>(field.name, ParseDType(field.dtype).value(), field.dims,
                        {field.bytes.begin(), field.bytes.end()});
}

uint64_t Digest(const std::vector<Field>& fields) {
  Batch batch;
  for (const Field& field : fields) batch.tensors.push_back(TensorOfField(field));
  return DigestOf(batch);
}

std::string Bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 37 + i / 251);
  return bytes;
}

const std::vector<Field> kFields = {{"labels", "i32", {1, 3}, Bytes(12)},
                                    {"input_ids", "i64", {1, 3}, Bytes(24)},
                                    {"empty", "f32", {0, 3}, ""},
                                    {"scalar", "u8", {}, "x"}};

TEST(Digest, IsTheHashOfTheRecipe) {
  EXPECT_EQ(Digest({}), Recipe({}));
  EXPECT_EQ(Digest(kFields), Recipe(kFields));
  for (size_t size : {1, 16, 17, 128, 240, 241, 256, 1024, 65'537}) {
    const std::vector<Field> one = {{"x", "u8", {static_cast<int64_t>(size)}, Bytes(size)}};
    EXPECT_EQ(Digest(one), Recipe(one)) << size;
  }
  for (DType dtype : kAllDTypes) {
    const std::vector<Field> one = {
        {"x", std::string(DTypeName(dtype)), {3}, Bytes(3 * ItemSize(dtype))}};
    EXPECT_EQ(Digest(one), Recipe(one)) << DTypeName(dtype);
  }
}

TEST(Digest, DoesNotDependOnTheOrderOfTheTensors) {
  std::vector<Field> fields = kFields;
  std::sort(fields.begin(), fields.end(),
            [](const Field& a, const Field& b) { return a.name < b.name; });
  do {
    EXPECT_EQ(Digest(fields), Digest(kFields));
  } while (std::next_permutation(fields.begin(), fields.end(),
                                 [](const Field& a, const Field& b) { return a.name < b.name; }));
}

TEST(Digest, ChangesWithTheNameTheDTypeTheShapeAndEachByte) {
  const Field base{"x", "i32", {2, 2}, Bytes(16)};
  const uint64_t digest = Digest({base});
  Field other = base;
  other.name = "y";
  EXPECT_NE(Digest({other}), digest);
  other = base;
  other.dtype = "f32";
  EXPECT_NE(Digest({other}), digest);
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{4}, {4, 1}, {1, 4}, {2, 2, 1}}) {
    other = base;
    other.dims = dims;
    EXPECT_NE(Digest({other}), digest);
  }
  for (size_t i = 0; i < base.bytes.size(); ++i) {
    other = base;
    other.bytes[i] = static_cast<char>(other.bytes[i] ^ 1);
    EXPECT_NE(Digest({other}), digest) << i;
  }
}

TEST(Digest, TellsApartWhichTensorHasWhichBytes) {
  const Field a{"a", "u8", {2}, "pq"}, b{"b", "u8", {2}, "rs"};
  EXPECT_NE(Digest({a, b}), Digest({{"a", "u8", {2}, "rs"}, {"b", "u8", {2}, "pq"}}));
  EXPECT_NE(Digest({a, b}), Digest({a}));
  EXPECT_NE(Digest({{"e", "u8", {0}, ""}}), Digest({}));  // an empty tensor is still a tensor
}

TEST(Digest, ScalarsAreNotPartOfIt) {
  Batch batch{{TensorOfField(kFields[0])}, {}};
  const uint64_t digest = DigestOf(batch);
  batch.scalars.push_back({"step", int64_t{5}});
  EXPECT_EQ(DigestOf(batch), digest);
}

TEST(Digest, DoesNotDependOnWhereTheBytesLie) {
  const std::string bytes = Bytes(300);
  const uint64_t digest = Digest({{"x", "u8", {300}, bytes}});
  for (size_t offset = 1; offset < 9; ++offset) {
    std::vector<std::byte> moved(offset + 300);
    std::memcpy(moved.data() + offset, bytes.data(), 300);
    const Tensor tensor{{"x", DType::kU8, {300}}, BufferOf(moved).Slice(offset, 300)};
    EXPECT_EQ(DigestOf({{tensor}, {}}), digest) << offset;
  }
}

}  // namespace
}  // namespace cpshard
