// shard_streams as it is on a GPU, without one: tensors whose device is CUDA and whose memory is
// the host's, torch's guard for them made here, and the bodies of the kernel on an emulated device.
// What is expected is the CPU's shard of the same bytes.
#include "core/torch/streams.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "core/exec/device/emulated.h"
#include "core/torch/cuda_streams.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;

const c10::Device kGpu(c10::kCUDA, 0);

// --- a CUDA device of torch's that is none
// ---------------------------------------------------------

// Stream 0 is the default one, whose handle is null; stream n has the handle n * 16.
thread_local c10::StreamId current_stream = 0;

struct FakeGuard : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return kGpu; }
  c10::Device getDevice() const override { return kGpu; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current_stream);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::UNSAFE, kGpu, std::exchange(current_stream, stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(stream.id() * 16);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
};
C10_REGISTER_GUARD_IMPL(CUDA, FakeGuard)

struct FakeMemory : c10::Allocator {
  explicit FakeMemory(c10::Device of) : device(of) {}
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = std::calloc(bytes + 1, 1);
    return {memory, memory, std::free, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return std::free; }
  void copy_data(void* dest, const void* source, size_t bytes) const override {
    std::memcpy(dest, source, bytes);
  }
  const c10::Device device;
};

at::Tensor Empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  static FakeMemory memory[] = {FakeMemory(kGpu), FakeMemory(c10::Device(c10::kCUDA, 1))};
  return at::detail::empty_generic(sizes, &memory[device->has_index() ? device->index() : 0],
                                   c10::DispatchKeySet(c10::DispatchKey::CUDA), *dtype, format);
}
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", Empty);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
}

// The bytes of a contiguous tensor of the CPU on the device.
at::Tensor ToGpu(const at::Tensor& tensor, c10::Device device = kGpu) {
  at::Tensor moved = at::empty(tensor.sizes(), tensor.options().device(device));
  std::memcpy(moved.mutable_data_ptr(), tensor.contiguous().const_data_ptr(), tensor.nbytes());
  return moved;
}

// --- what is sharded
// -------------------------------------------------------------------------------

struct Job {
  std::vector<at::Tensor> streams;
  std::vector<int64_t> dims;
  std::vector<at::Scalar> fills;
  at::Tensor runs;
};

constexpr at::ScalarType kDtypes[] = {at::kBool,     at::kByte,        at::kShort, at::kHalf,
                                      at::kBFloat16, at::kInt,         at::kFloat, at::kLong,
                                      at::kDouble,   at::kComplexFloat};

// Streams of every dtype, of random shapes (axes of 0 among them) with `columns` on a random axis,
// beginning at any element of their memory.
Job Drawn(uint32_t seed, int64_t columns, int64_t most_runs, int64_t most_length) {
  std::mt19937 random(seed);
  const auto draw = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
  Job job;
  std::vector<int64_t> runs;
  for (int64_t count = draw(most_runs); count > 0; --count) {
    const bool filled = columns == 0 || draw(4) == 0;
    const int64_t source = filled ? -1 : draw(columns - 1);
    runs.push_back(source);
    runs.push_back(filled ? draw(most_length) : draw(std::min(most_length, columns - source)));
  }
  job.runs = at::tensor(runs, at::kLong).view({-1, 2});
  for (const at::ScalarType dtype : kDtypes) {
    std::vector<int64_t> sizes;
    for (int64_t axes = draw(2); axes >= 0; --axes) sizes.push_back(draw(6) == 0 ? 0 : 1 + draw(4));
    const int64_t dim = draw(static_cast<int64_t>(sizes.size()) - 1), offset = draw(3);
    sizes[dim] = columns;
    const at::Tensor memory = at::empty({c10::multiply_integers(sizes) + offset}, dtype);
    auto* bytes = static_cast<uint8_t*>(memory.mutable_data_ptr());
    for (size_t i = 0; i < memory.nbytes(); ++i)
      bytes[i] = random() % (dtype == at::kBool ? 2 : 256);
    job.streams.push_back(memory.narrow(0, offset, memory.numel() - offset).view(sizes));
    job.dims.push_back(draw(1) == 0 ? dim : dim - static_cast<int64_t>(sizes.size()));
    job.fills.push_back(dtype == at::kBool ? at::Scalar(true) : at::Scalar(draw(100)));
  }
  return job;
}

// On the device as on the CPU, at the same places modulo an element.
std::vector<at::Tensor> OnGpu(const std::vector<at::Tensor>& streams) {
  std::vector<at::Tensor> moved;
  for (const at::Tensor& stream : streams) {
    const int64_t offset = stream.storage_offset();
    const at::Tensor memory = at::empty({stream.numel() + offset}, stream.options().device(kGpu));
    moved.push_back(memory.narrow(0, offset, stream.numel()).view(stream.sizes()));
    std::memcpy(moved.back().mutable_data_ptr(), stream.const_data_ptr(), stream.nbytes());
  }
  return moved;
}

RunTasks By(Executor& executor) {
  return [&executor](at::Device device, absl::Span<const Task> tasks) {
    EXPECT_EQ(device, kGpu);
    return executor.Run(tasks);
  };
}

void ExpectSame(const std::vector<at::Tensor>& made, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(made.size(), expected.size());
  for (size_t i = 0; i < made.size(); ++i) {
    ASSERT_EQ(made[i].device(), kGpu);
    ASSERT_EQ(made[i].sizes(), expected[i].sizes());
    ASSERT_EQ(made[i].scalar_type(), expected[i].scalar_type());
    ASSERT_TRUE(made[i].is_contiguous());
    EXPECT_EQ(
        std::memcmp(made[i].const_data_ptr(), expected[i].const_data_ptr(), expected[i].nbytes()),
        0)
        << "stream " << i << " of " << expected[i].scalar_type() << " " << expected[i].sizes();
  }
}

// --- tests
// -----------------------------------------------------------------------------------------

TEST(ShardStreamsOnADevice, HasTheBytesOfTheCpusShards) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const int64_t columns = seed % 2 == 0 ? seed % 41 : 10 * seed;
    const Job job = Drawn(seed, columns, /*most_runs=*/seed % 9, /*most_length=*/columns + 20);
    const auto executor = MakeEmulatedDeviceExecutor();
    ExpectSame(ShardStreamsBy(By(*executor), OnGpu(job.streams), job.runs, job.dims, job.fills),
               ShardStreams(job.streams, job.runs, job.dims, job.fills));
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

// Calls that return before anything is done, on one stream: no table may be written over one that
// is still to be read. Here nothing is done before it has to be.
TEST(ShardStreamsOnADevice, CallsThatReturnEarlyDoNotDisturbEachOther) {
  EmulatedDeviceOptions options;
  options.memory_bytes = 64 << 10;
  options.pinned_bytes = 16 << 10;
  options.executor.return_early = true;
  auto executor = MakeEmulatedDeviceExecutor(options);
  std::vector<std::vector<at::Tensor>> sources, made, expected;
  for (uint32_t seed = 0; seed < 40; ++seed) {  // every fourth has a table larger than that
    const Job job = Drawn(seed, /*columns=*/500, /*most_runs=*/seed % 4 == 0 ? 800 : 8,
                          /*most_length=*/seed % 4 == 0 ? 1 : 200);
    sources.push_back(OnGpu(job.streams));
    made.push_back(ShardStreamsBy(By(*executor), sources.back(), job.runs, job.dims, job.fills));
    expected.push_back(ShardStreams(job.streams, job.runs, job.dims, job.fills));
  }
  executor.reset();  // waits
  for (size_t i = 0; i < made.size(); ++i) ExpectSame(made[i], expected[i]);
}

TEST(ShardStreamsOnADevice, IsOneLaunchOfAllStreams) {
  DeviceTraffic traffic;
  EmulatedDeviceOptions options;
  options.traffic = &traffic;
  const auto executor = MakeEmulatedDeviceExecutor(options);
  const at::Tensor ids = ToGpu(at::arange(4000)), mask = ToGpu(at::ones({2, 4000}, at::kBool));
  const at::Tensor runs = at::tensor({1000, 1000, -1, 7, 3000, 900}, at::kLong).view({3, 2});
  ShardStreamsBy(By(*executor), {ids, mask}, runs, {0, 1}, {0, false});
  EXPECT_EQ(traffic.launches, 1);
  EXPECT_EQ(traffic.misaligned, 0);
  EXPECT_LT(traffic.copied_in, 4000);  // the table: nothing of the streams
  EXPECT_EQ(traffic.copied_out, 0);
}

// Rows at strides, expanded ones and the same row for all: on a device they are not copied first,
// for that would take as much memory as the whole stream.
TEST(ShardStreamsOnADevice, ReadsRowsWhereTheyLie) {
  const at::Tensor runs = at::tensor({1, 2, -1, 1, 0, 3}, at::kLong).view({3, 2});
  const at::Tensor numbers = at::arange(3 * 4 * 5 * 6).view({3, 4, 5, 6});
  const std::vector<std::pair<std::function<at::Tensor(const at::Tensor&)>, int64_t>> cases = {
      {[](const at::Tensor& t) {
         return t.narrow(0, 1, 1).expand({7, 4, 5, 6});
       },
       3},
      {[](const at::Tensor& t) {
         return t.narrow(1, 2, 1).expand({3, 8, 5, 6});
       },
       2},
      {[](const at::Tensor& t) { return t.narrow(2, 1, 3); }, 3},
      {[](const at::Tensor& t) { return t.narrow(1, 1, 2).narrow(2, 2, 2); }, 3},
      {[](const at::Tensor& t) {
         return t.permute({2, 1, 0, 3});
       },
       3},
      {[](const at::Tensor& t) {
         return t.permute({1, 0, 2, 3}).narrow(2, 0, 3);
       },
       3},
      {[](const at::Tensor& t) { return t.select(0, 1).select(0, 2).unsqueeze(0); }, 2},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [view, dim] = cases[i];
    const auto executor = MakeEmulatedDeviceExecutor();
    const at::Tensor stream = view(numbers);
    ExpectSame(ShardStreamsBy(By(*executor), {view(ToGpu(numbers))}, runs, {dim}, {-1}),
               ShardStreams({stream.contiguous()}, runs, {dim}, {-1}));
    if (HasFailure()) FAIL() << "case " << i;
  }
}

TEST(ShardStreamsOnADevice, AsksNobodyWhereNothingIsToBeDone) {
  const RunTasks refuse = [](at::Device, absl::Span<const Task>) {
    return absl::InternalError("nothing was to be done");
  };
  const at::Tensor none = at::empty({0, 2}, at::kLong), two = at::tensor({0, 2}, at::kLong);
  const at::Tensor stream = ToGpu(at::ones({2, 4})), empty = ToGpu(at::ones({0, 4}));
  EXPECT_EQ(ShardStreamsBy(refuse, {stream}, none, {1}, {0})[0].sizes(), (at::IntArrayRef{2, 0}));
  EXPECT_EQ(ShardStreamsBy(refuse, {empty}, two.view({1, 2}), {1}, {0})[0].sizes(),
            (at::IntArrayRef{0, 2}));
  EXPECT_TRUE(ShardStreamsBy(refuse, {}, none, {}, {}).empty());
}

// The text of what was raised, if it was of this very kind; c10::Error is RuntimeError in Python.
template <typename Kind>
std::string Raised(const std::function<void()>& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    if (typeid(error) == typeid(Kind)) return error.what_without_backtrace();
    return c10::str("(of another kind, ", typeid(error).name(), ")");
  }
  return "(nothing was raised)";
}

TEST(ShardStreamsOnADevice, StreamsOfTwoDevicesAreRefusedByName) {
  const at::Tensor on_host = at::ones({2, 4}), on_gpu = ToGpu(on_host);
  const at::Tensor on_other = ToGpu(on_host, c10::Device(c10::kCUDA, 1));
  const at::Tensor runs = at::tensor({0, 2}, at::kLong).view({1, 2});
  EXPECT_THAT(Raised<c10::ValueError>([&] {
                ShardStreams({on_gpu, on_gpu, on_host}, runs, {1, 1, 1}, {0, 0, 0});
              }),
              HasSubstr("stream 0 is on cuda:0, stream 2 on cpu"));
  EXPECT_THAT(Raised<c10::ValueError>([&] {
                ShardStreams({on_gpu, on_other}, runs, {1, 1}, {0, 0});
              }),
              HasSubstr("stream 0 is on cuda:0, stream 1 on cuda:1"));
  EXPECT_THAT(Raised<c10::ValueError>([&] {
                ShardStreams({at::ones({2, 4}, at::kMeta)}, runs, {1}, {0});
              }),
              HasSubstr("stream 0 is on meta"));
}

TEST(ShardStreamsOnADevice, WhatTheDeviceSaysIsOfTorchsKinds) {
  const at::Tensor stream = ToGpu(at::ones({2, 4}));
  const at::Tensor runs = at::tensor({0, 2}, at::kLong).view({1, 2});
  const auto raising = [&](absl::Status status) {
    return [&, status] {
      ShardStreamsBy([&](at::Device, absl::Span<const Task>) { return status; }, {stream}, runs,
                     {1}, {0});
    };
  };
  EXPECT_THAT(Raised<c10::NotImplementedError>(raising(absl::UnimplementedError("no CUDA"))),
              HasSubstr("no CUDA; shard_token_tensor cuts a stream"));
  EXPECT_THAT(Raised<c10::OutOfMemoryError>(raising(absl::ResourceExhaustedError("12 bytes"))),
              HasSubstr("12 bytes"));
  EXPECT_THAT(Raised<c10::ValueError>(raising(absl::InvalidArgumentError("of another device"))),
              HasSubstr("of another device"));
  EXPECT_EQ(Raised<c10::Error>(raising(absl::FailedPreconditionError("a capture"))), "a capture");
  EXPECT_EQ(Raised<c10::Error>(raising(absl::InternalError("lost"))), "lost");
}

TEST(ShardStreamsOnADevice, SaysWhatStandsAgainstIt) {
  const std::string obstacle = CudaObstacle();
  if (obstacle.empty()) GTEST_SKIP() << "nothing does: tests/python/test_gpu_streams.py goes on";
  const at::Tensor runs = at::tensor({0, 2}, at::kLong).view({1, 2});
  EXPECT_THAT(Raised<c10::NotImplementedError>([&] {
                ShardStreams({ToGpu(at::ones({2, 4}))}, runs, {1}, {0});
              }),
              HasSubstr(obstacle));  // without CUDA, a driver, or a device alike
}

TEST(ShardStreamsOnADevice, IsWhatTheOperatorDoes) {
  const auto shard_streams =
      c10::Dispatcher::singleton().findSchemaOrThrow("cpshard::shard_streams", "");
  EXPECT_TRUE(shard_streams.hasKernelForDispatchKey(c10::DispatchKey::CUDA));
  EXPECT_TRUE(shard_streams.hasKernelForDispatchKey(c10::DispatchKey::CPU));
  EXPECT_FALSE(shard_streams.hasKernelForDispatchKey(c10::DispatchKey::Meta));  // has no shapes
}

TEST(CurrentStreams, AreTorchsWithTheirHandles) {
  EXPECT_EQ(CurrentStream(kGpu), (DeviceStream{0, nullptr}));
  current_stream = 3;
  EXPECT_EQ(CurrentStream(kGpu), (DeviceStream{0, reinterpret_cast<void*>(48)}));
  EXPECT_EQ(CurrentStream({c10::kCUDA, 1}).device, 1);
  current_stream = 0;
}

}  // namespace
}  // namespace cpshard
