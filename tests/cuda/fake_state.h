// What a fake CUDA runtime remembers. For its own files.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "tests/cuda/fake_runtime.h"

namespace cpshard::fake_cuda {

struct Stream {
  int device = 0;
  bool is_callers = false;
  std::deque<std::function<void()>> work;
  int64_t done = 0, put = 0;
  bool is_captured = false, is_spoilt = false;

  void Put(std::function<void()> next);
  void DoUpTo(int64_t number);
};

// Behind what was on a stream when it was recorded.
struct Event {
  bool is_blocking = false;  // who waits for it sleeps
  std::shared_ptr<Stream> stream;
  int64_t number = 0;
};

struct Block {
  size_t bytes = 0;
  int device = -1;  // -1: pinned memory of the host
  bool is_callers = false;
};

struct State {
  std::recursive_mutex mutex;
  int devices = 4;
  std::set<int> contexts;
  std::map<int, int> refused_contexts;  // the error of making one
  std::vector<Fault> faults;
  std::map<std::string, int> calls;
  int sticky = 0;
  int spins = 0;
  int kernels_under_way = 0;  // on whatever stream
  std::map<void*, std::shared_ptr<Stream>> streams;
  std::map<int, std::shared_ptr<Stream>> default_streams;
  std::vector<std::shared_ptr<Stream>> destroyed_streams;  // whose work is still done
  std::map<void*, Event> events;
  std::map<std::byte*, Block> blocks;
  std::vector<std::string> misuses;
};
State& TheState();

// Of a thread.
struct Thread {
  std::vector<int> contexts;  // the current one is the last
  int last_error = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
};
Thread& ThisThread();

// The context of the device is there from now on, or an error.
int MakeContext(int device);

// Null where there is no such stream (any more).
std::shared_ptr<Stream> StreamOf(void* handle, int device);

// Of a stream or an event: no other one has it.
void* NewHandle();

std::byte* Allocate(const Block& what);

// Null where not all of it is in one block.
const Block* BlockOf(const void* memory, size_t bytes);
void Misuse(std::string what);

// A kernel of cpshard's, as the arguments of its launch name it.
std::function<void()> KernelOf(int device, void** arguments);

}  // namespace cpshard::fake_cuda
