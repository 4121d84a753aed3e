#include "tests/cuda/fake_runtime.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/exec/device/bodies.h"
#include "tests/cuda/fake_state.h"

namespace cpshard::fake_cuda {
namespace {

// The last block that begins at or before the address; end() where there is none.
std::map<std::byte*, Block>::const_iterator BlockAt(const std::byte* address) {
  const auto& blocks = TheState().blocks;
  const auto next = blocks.upper_bound(const_cast<std::byte*>(address));
  return next == blocks.begin() ? blocks.end() : std::prev(next);
}

// Memory as the kernel of a device sees it.
class CheckedMemory {
 public:
  explicit CheckedMemory(int device) : device_(device) {}

  void Round(uint32_t) {}

  template <typename T>
  T Load(uint64_t address) {
    T value{};
    if (Reaches(address, sizeof(T), loaded_)) {
      std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof(T));
    }
    return value;
  }
  template <typename T>
  void Store(uint64_t address, T value) {
    if (Reaches(address, sizeof(T), stored_)) {
      std::memcpy(reinterpret_cast<void*>(address), &value, sizeof(T));
    }
  }

 private:
  // A block of the last access, which the next one mostly is of too.
  struct Range {
    uint64_t begin = 0, end = 0;
  };

  bool Reaches(uint64_t address, size_t bytes, Range& last) {
    if (address >= last.begin && address + bytes <= last.end) return true;
    const auto block = BlockAt(reinterpret_cast<const std::byte*>(address));
    const bool reaches = block != TheState().blocks.end() &&
                         (block->second.device == -1 || block->second.device == device_);
    if (reaches) {
      last.begin = reinterpret_cast<uintptr_t>(block->first);
      last.end = last.begin + block->second.bytes;
      if (address + bytes <= last.end) return true;
      last = {};
    }
    TheState().sticky = cudaErrorIllegalAddress;
    return false;
  }

  const int device_;
  Range loaded_, stored_;
};

std::vector<std::shared_ptr<Stream>> AllStreams() {
  const State& state = TheState();
  std::vector<std::shared_ptr<Stream>> all = state.destroyed_streams;
  for (const auto& [handle, stream] : state.streams) all.push_back(stream);
  for (const auto& [device, stream] : state.default_streams) all.push_back(stream);
  return all;
}

}  // namespace

State& TheState() {
  static State* const state = new State;
  return *state;
}

Thread& ThisThread() {
  static thread_local Thread thread;
  return thread;
}

void Stream::Put(std::function<void()> next) {
  work.push_back(std::move(next));
  ++put;
}

void Stream::DoUpTo(int64_t number) {
  while (done < number && TheState().sticky == 0) {
    const std::function<void()> next = std::move(work.front());
    work.pop_front();
    ++done;
    next();
  }
}

int MakeContext(int device) {
  State& state = TheState();
  const auto refused = state.refused_contexts.find(device);
  if (refused != state.refused_contexts.end()) return refused->second;
  state.contexts.insert(device);
  return 0;
}

std::shared_ptr<Stream> StreamOf(void* handle, int device) {
  State& state = TheState();
  if (handle == nullptr || handle == cudaStreamLegacy) {
    std::shared_ptr<Stream>& stream = state.default_streams[device];
    if (stream == nullptr) stream = std::make_shared<Stream>(Stream{device, true});
    return stream;
  }
  const auto found = state.streams.find(handle);
  return found == state.streams.end() ? nullptr : found->second;
}

const Block* BlockOf(const void* memory, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(memory);
  const auto block = BlockAt(begin);
  if (block == TheState().blocks.end()) return nullptr;
  return begin + bytes <= block->first + block->second.bytes ? &block->second : nullptr;
}

void* NewHandle() {
  static intptr_t last = 0x1000;  // none is the handle of a default stream
  return reinterpret_cast<void*>(++last);
}

std::byte* Allocate(const Block& what) {
  constexpr size_t kAlignment = 256;
  const size_t room = (what.bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* block = static_cast<std::byte*>(std::aligned_alloc(kAlignment, room));
  TheState().blocks[block] = what;
  return block;
}

void Misuse(std::string what) { TheState().misuses.push_back(std::move(what)); }

// Back to front: nothing may depend on the order of the pieces.
std::function<void()> KernelOf(int device, void** arguments) {
  const auto* rules = *static_cast<const Rule**>(arguments[0]);
  const auto* pieces = *static_cast<const Piece**>(arguments[1]);
  const auto count = *static_cast<const int64_t*>(arguments[2]);
  ++TheState().kernels_under_way;
  return [=] {
    --TheState().kernels_under_way;
    CheckedMemory memory(device);
    for (int64_t i = count; i-- > 0;) {
      for (uint32_t lane = 0; lane < kLanes; ++lane) RunPiece(memory, pieces[i], rules, lane);
    }
  };
}

void Reset(int devices) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  for (const auto& [block, what] : state.blocks) std::free(block);
  state.devices = devices;
  state.contexts.clear();
  state.refused_contexts.clear();
  state.faults.clear();
  state.calls.clear();
  state.sticky = 0;
  state.spins = 0;
  state.kernels_under_way = 0;
  state.streams.clear();
  state.default_streams.clear();
  state.destroyed_streams.clear();
  state.events.clear();
  state.blocks.clear();
  state.misuses.clear();
  ThisThread() = {};
}

void Inject(Fault fault) { TheState().faults.push_back(std::move(fault)); }

void Heal() { TheState().faults.clear(); }

std::set<int> Contexts() { return TheState().contexts; }

void RefuseContext(int device, int error) { TheState().refused_contexts[device] = error; }

std::optional<int> CurrentDevice() {
  const std::vector<int>& contexts = ThisThread().contexts;
  return contexts.empty() ? std::nullopt : std::optional<int>(contexts.back());
}

void SetDevice(int device) {
  MakeContext(device);
  std::vector<int>& contexts = ThisThread().contexts;
  if (contexts.empty()) contexts.push_back(device);
  contexts.back() = device;
}

int LastError() { return ThisThread().last_error; }
void LeaveError(int error) { ThisThread().last_error = error; }
int Calls(const std::string& name) { return TheState().calls[name]; }

int Spins() { return TheState().spins; }

void* MakeStream(int device) {
  void* const handle = NewHandle();
  TheState().streams[handle] = std::make_shared<Stream>(Stream{device, true});
  return handle;
}

void DestroyStream(void* stream) {
  State& state = TheState();
  const auto found = state.streams.find(stream);
  if (found == state.streams.end()) return;
  if (!found->second->work.empty()) state.destroyed_streams.push_back(found->second);
  state.streams.erase(found);
}

void Put(void* stream, int device, std::function<void()> work) {
  StreamOf(stream, device)->Put(std::move(work));
}

void DoAll() {
  for (const auto& stream : AllStreams()) stream->DoUpTo(stream->put);
}

int UnderWay() {
  size_t count = TheState().kernels_under_way;
  for (const auto& stream : AllStreams()) {
    if (!stream->is_callers) count += stream->work.size();
  }
  return static_cast<int>(count);
}

void BeginCapture(void* stream) { StreamOf(stream, 0)->is_captured = true; }

bool EndCapture(void* stream) {
  const std::shared_ptr<Stream> captured = StreamOf(stream, 0);
  captured->is_captured = false;
  return !captured->is_spoilt;
}

int InUse() {
  const State& state = TheState();
  size_t count = state.events.size();
  for (const auto& [handle, stream] : state.streams) count += !stream->is_callers;
  for (const auto& [begin, block] : state.blocks) count += !block.is_callers;
  return static_cast<int>(count);
}

std::byte* DeviceMemory(int device, size_t bytes) { return Allocate({bytes, device, true}); }
std::byte* PinnedMemory(size_t bytes) { return Allocate({bytes, -1, true}); }

void Unmap(std::byte* memory) {
  TheState().blocks.erase(memory);
  std::free(memory);
}

std::vector<std::string> Misuses() { return TheState().misuses; }

}  // namespace cpshard::fake_cuda
