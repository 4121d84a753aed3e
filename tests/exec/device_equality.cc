#include "tests/exec/device_equality.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/exec/shard.h"
#include "tests/exec/batches.h"
#include "tests/exec/random_plan.h"

namespace cpshard {
namespace {

constexpr Op kAllOps[] = {Op::kNone,        Op::kIsZero,     Op::kNotZero,
                          Op::kNotPositive, Op::kBitwiseNot, Op::kEquals};

// Bits of any kind, and those around which conversions go wrong: zeros, infinities, NaN of both
// signs quiet and signalling, subnormals, the ends of the integer dtypes.
std::vector<uint64_t> BitsOf(DType dtype, std::mt19937_64& random) {
  std::vector<uint64_t> bits;
  for (int i = 0; i < 40; ++i) bits.push_back(random());
  for (int i = 0; i < 20; ++i) bits.push_back(random() % 5 - 2);
  if (!IsFloating(dtype)) return bits;
  for (const double value : {0.0, 1.0, -1.0, 127.0, 128.0, -128.0, -129.0, 255.0, 256.0, 32768.0}) {
    bits.push_back(Encode(dtype, value));
  }
  const int exponent = dtype == DType::kF16 ? 5 : dtype == DType::kF64 ? 11 : 8;
  const int mantissa = static_cast<int>(8 * ItemSize(dtype)) - 1 - exponent;
  const uint64_t infinity = ((uint64_t{1} << exponent) - 1) << mantissa;
  const uint64_t sign = uint64_t{1} << (exponent + mantissa);
  for (const uint64_t one : {infinity, infinity | 1, infinity | uint64_t{1} << (mantissa - 1),
                             infinity | random() % (uint64_t{1} << mantissa), uint64_t{0},
                             uint64_t{1}, random() % (uint64_t{1} << mantissa)}) {
    bits.push_back(one);
    bits.push_back(one | sign);
  }
  if (dtype == DType::kF32 || dtype == DType::kF64) {
    for (const double power : {0x1p15, 0x1p31, 0x1p63}) {
      for (const double value : {power, -power, power * 0.999, -power * 1.001}) {
        const float single = static_cast<float>(value);
        bits.push_back(dtype == DType::kF64 ? std::bit_cast<uint64_t>(value)
                                            : std::bit_cast<uint32_t>(single));
      }
    }
  }
  return bits;
}

std::vector<std::byte> Packed(DType dtype, const std::vector<uint64_t>& bits) {
  std::vector<std::byte> bytes(bits.size() * ItemSize(dtype));
  for (size_t i = 0; i < bits.size(); ++i) {
    std::memcpy(bytes.data() + i * ItemSize(dtype), &bits[i], ItemSize(dtype));
  }
  return bytes;
}

// Runs the tasks on both; task i writes sizes[i] bytes, handed to `aim`, which names the memory.
template <typename T>
void ExpectTheSame(Executor& cpu, Executor& device, std::vector<T> tasks,
                   const std::vector<size_t>& sizes, void (*aim)(T&, std::byte*),
                   std::string (*name)(const T&)) {
  std::vector<std::vector<std::byte>> results[2];
  for (const int which : {0, 1}) {
    for (const size_t size : sizes) results[which].emplace_back(size, std::byte{0x5a});
    std::vector<Task> aimed;
    for (size_t i = 0; i < tasks.size(); ++i) {
      aim(tasks[i], results[which][i].data());
      aimed.push_back(tasks[i]);
    }
    const absl::Status status = (which == 0 ? cpu : device).Run(aimed);
    ASSERT_TRUE(status.ok()) << status;
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    ASSERT_EQ(results[0][i], results[1][i]) << name(tasks[i]);
  }
}

TEST_P(DeviceEquality, EveryDerivationOfAnyBitsIsTheCpus) {
  std::mt19937_64 random(11);
  for (const DType from : kAllDTypes) {
    const std::vector<uint64_t> bits = BitsOf(from, random);
    const std::vector<std::byte> source = Packed(from, bits);
    std::vector<DeriveTask> tasks;
    std::vector<size_t> sizes;
    for (const DType to : kAllDTypes) {
      for (const Op op : kAllOps) {
        for (int cast = -1; cast < static_cast<int>(kAllDTypes.size()); ++cast) {
          DeriveTask task;
          task.source = source.data();
          task.source_dtype = from;
          task.dest_dtype = to;
          task.count = static_cast<int64_t>(bits.size());
          if (cast >= 0) task.cast = kAllDTypes[cast];
          task.op = op;
          task.operand = static_cast<int64_t>(random() % 7) - 3;
          tasks.push_back(task);
          sizes.push_back(bits.size() * ItemSize(to));
        }
      }
    }
    ExpectTheSame<DeriveTask>(
        *cpu_, *executor_, tasks, sizes, [](DeriveTask& task, std::byte* at) { task.dest = at; },
        [](const DeriveTask& task) {
          return absl::StrCat(DTypeName(task.source_dtype), " to ", DTypeName(task.dest_dtype),
                              " by way of ", task.cast ? DTypeName(*task.cast) : "nothing", ", op ",
                              static_cast<int>(task.op), " ", task.operand);
        });
  }
}

TEST_P(DeviceEquality, EveryContinuationAndRampOfAnyBitsIsTheCpus) {
  std::mt19937_64 random(12);
  for (const DType dtype : kAllDTypes) {
    const std::vector<uint64_t> bits = BitsOf(dtype, random);
    const std::vector<std::byte> source = Packed(dtype, bits);
    std::vector<CutTask> tasks;
    std::vector<size_t> sizes;
    for (const int64_t start : {int64_t{0}, int64_t{1}, int64_t{300}, int64_t{70000},
                                int64_t{1} << 33, (int64_t{1} << 53) + 1}) {
      for (const Move::Kind kind : {Move::Kind::kContinue, Move::Kind::kRamp}) {
        CutTask task;  // every element of the source goes on for itself
        task.source = source.data();
        task.outer = 1;
        task.column_bytes = static_cast<int64_t>(source.size());
        task.dtype = dtype;
        task.moves = Share({{{kind, 1, 0, 0, 0, 5, start}}});
        task.dest_strides = {0};
        tasks.push_back(task);
        sizes.push_back(5 * source.size());
      }
    }
    ExpectTheSame<CutTask>(
        *cpu_, *executor_, tasks, sizes, [](CutTask& task, std::byte* at) { task.dests = {at}; },
        [](const CutTask& task) {
          const Move& move = task.moves->front().front();
          return absl::StrCat(DTypeName(task.dtype), ", kind ", static_cast<int>(move.kind),
                              ", start ", move.start);
        });
  }
}

// Moves, rows and destinations that overwrite each other in any way, also in later tasks.
TEST_P(DeviceEquality, WhatIsWrittenTwiceIsWhatTheCpuLeaves) {
  std::mt19937 random(13);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  std::vector<int32_t> source(100);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<int32_t>(1000 + i);
  for (int round = 0; round < 400; ++round) {
    std::vector<int32_t> results[2] = {std::vector<int32_t>(200, -1),
                                       std::vector<int32_t>(200, -1)};
    std::vector<CutTask> tasks(1 + below(3));
    std::vector<std::vector<int64_t>> offsets;  // of the destinations of each task, in elements
    for (CutTask& task : tasks) {
      task.source = reinterpret_cast<const std::byte*>(source.data());
      task.outer = 1 + below(3);
      task.source_stride = 4 * below(20);
      task.column_bytes = 4;
      task.dtype = DType::kI32;
      task.fill.bits = 7;
      Moves moves;
      for (int64_t n = 1 + below(6); n > 0; --n) {
        Move move{static_cast<Move::Kind>(below(4)), static_cast<uint8_t>(below(2))};
        move.dest = static_cast<int32_t>(below(2));
        move.from = below(30);
        move.to = below(30);
        move.length = below(25);
        move.start = below(500);
        moves.push_back(move);
      }
      task.moves = Share({moves});
      task.dest_strides = {4 * below(30), 4 * below(30)};
      offsets.push_back({below(60), below(60)});
    }
    for (const int which : {0, 1}) {
      std::vector<Task> aimed;
      for (size_t i = 0; i < tasks.size(); ++i) {
        tasks[i].dests.clear();
        for (const int64_t at : offsets[i]) {
          tasks[i].dests.push_back(reinterpret_cast<std::byte*>(results[which].data() + at));
        }
        aimed.push_back(tasks[i]);
      }
      const absl::Status status = (which == 0 ? *cpu_ : *executor_).Run(aimed);
      ASSERT_TRUE(status.ok()) << status;
    }
    ASSERT_EQ(results[0], results[1]) << "round " << round;
  }
}

TEST_P(DeviceEquality, RandomPlansGiveTheCpusShards) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    const RandomPlan random(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + ToString(random.plan));
    std::vector<int64_t> ranks(random.plan.cp_size.value());
    for (size_t k = 0; k < ranks.size(); ++k) ranks[k] = static_cast<int64_t>(k);
    if (seed % 3 == 0) std::reverse(ranks.begin(), ranks.end());
    BufferPool pool;
    const auto expected = MakeShards(random.plan, random.batch, ranks, *cpu_, pool);
    const auto actual = MakeShards(random.plan, random.batch, ranks, *executor_, pool);
    ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
    for (size_t k = 0; k < ranks.size(); ++k) {
      const std::vector<Tensor>& tensors = actual->shards[k].batch.tensors;
      for (size_t s = 0; s < tensors.size(); ++s) {
        ASSERT_EQ(BytesOf(tensors[s]), BytesOf(expected->shards[k].batch.tensors[s]))
            << tensors[s].spec.name << " of rank " << ranks[k];
      }
    }
  }
}

}  // namespace
}  // namespace cpshard
