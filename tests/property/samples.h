// Batches for the property tests, in the oracle's types: built from tables of stream variants, and
// carried over to the product's types and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/batch/batch.h"
#include "core/oracle/restatement.h"
#include "core/plan/sharder.h"

namespace cpshard::property {

// Small, seeded and the same everywhere, unlike the distributions of <random>.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  int64_t Below(int64_t bound) { return static_cast<int64_t>(Next() % bound); }
  bool OneIn(int64_t n) { return Below(n) == 0; }

 private:
  uint64_t state_;
};

// B and S of a batch, and the ranks it is for (absent = no mesh).
struct Point {
  std::optional<int64_t> cp_size;
  int64_t length = 0;
  int64_t rows = 0;

  int64_t num_ranks() const { return cp_size.value_or(1); }
};

// A batch and what a caller says beside it.
struct Sample {
  oracle::Batch streams;
  std::optional<int64_t> padding_token_id = 7;
  std::vector<oracle::Extra> extras;
  std::optional<std::string> qkv_format;
};

enum class Content {
  kCount,      // running integers, so that a misplaced token shows where it came from
  kPositions,  // running integers that pass the end of the dtype's exact range
  kBits,       // any bits, NaN payloads too (bool: 0 or 1)
  kMask,       // 0 and non-zero values, among them -0.0 and NaN
};

// One way to send one stream. In `shape` B, S and T = S + 2 stand for lengths, digits for
// themselves.
struct Variant {
  std::string name;
  std::string dtype;  // empty = the stream is not sent
  std::string shape;
  Content content = Content::kCount;
  std::optional<oracle::Extra> extra;  // declared with it
};

// The alternatives for each stream; the first one of each is the plain one.
using Variants = std::vector<std::vector<Variant>>;
const Variants& StreamVariants();

// The same for layouts of packed documents, but for their lengths (documents.h).
const Variants& PackedStreamVariants();

oracle::Tensor MakeTensor(const std::string& dtype, std::vector<int64_t> dims, Content content,
                          Rng& rng);

void Put(const Variant& variant, const Point& point, Rng& rng, Sample& sample);

// Every stream drawn from its variants, the plain one half of the time.
Sample DrawSample(const Variants& variants, const Point& point, Rng& rng);

// Every stream plain but variants[stream], which is its variant `choice`.
Sample PlainSampleWith(const Variants& variants, size_t stream, size_t choice, const Point& point,
                       Rng& rng);

oracle::Tensor FromProduct(const Tensor& tensor);
Batch ToProduct(const Sample& sample);
SharedOptions SharedOptionsOf(const Sample& sample);

// "cp 2, S 5, B 1; input_ids i64 [1, 5]; ..."
std::string Describe(const Sample& sample, const Point& point);

}  // namespace cpshard::property
