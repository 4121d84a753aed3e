// A CUDA runtime that is not there: the calls of core/exec/cuda*.cu, over host memory. It is linked
// in place of the runtime, so that everything but the GPU is the code that a program has: what is
// enqueued where, what waits for what, what an error leaves behind.
//
// Streams are late: nothing on them is done before somebody waits for it. Kernels are carried out
// by the host-compiled bodies; one that touches memory which the device does not reach faults as on
// a device, with error 700, and from then on every call says so.
//
// What no program may do is written down and done as harmlessly as may be: see Misuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cpshard::fake_cuda {

// A process that has not called CUDA yet. The calling thread has no context, no error left.
void Reset(int devices = 4);

// From the call number `from` of this name on (1 is the next), and `times` times, it does nothing
// and returns the error; a sticky one every other call returns from then on.
struct Fault {
  std::string call;
  int error = 0;
  int from = 1, times = 1 << 30;
  bool sticky = false;
};
void Inject(Fault fault);
void Heal();  // forgets all of them but what is sticky

// Devices of which the process has a context; on some none can be made.
std::set<int> Contexts();
void RefuseContext(int device, int error);

// Of the calling thread.
std::optional<int> CurrentDevice();
void SetDevice(int device);  // as a program does with cudaSetDevice
int LastError();             // which this does not forget
void LeaveError(int error);

// Number of calls of this name.
int Calls(const std::string& name);

// Waiting that keeps a core busy.
int Spins();

// Of a caller's; null is the default stream of a device.
void* MakeStream(int device);
void DestroyStream(void* stream);
void Put(void* stream, int device, std::function<void()> work);
void DoAll();    // all that is on any stream
int UnderWay();  // kernels of cpshard's, and what else is on streams that it has made

// A graph is captured from the stream: in global mode, as cudaStreamBeginCapture does by default.
void BeginCapture(void* stream);
bool EndCapture(void* stream);  // whether nobody has spoilt it

// Memory of cpshard's, streams and events that have not been given back.
int InUse();

std::byte* DeviceMemory(int device, size_t bytes);  // until Reset
std::byte* PinnedMemory(size_t bytes);
void Unmap(std::byte* memory);  // and whatever touches it from now on faults

// Memory given back while work was under way that may use it, calls that spoil a capture, copies of
// pageable memory by the copy engine, launches of other shapes than their number of pieces.
std::vector<std::string> Misuses();

}  // namespace cpshard::fake_cuda
