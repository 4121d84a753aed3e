#include "tests/gpu/lost.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/exec/cuda.h"
#include "core/exec/device/device_lost.h"
#include "core/exec/device/piece.h"
#include "core/plan/status_macros.h"
#include "tests/gpu/anchors.h"
#include "tests/gpu/swap.h"

namespace cpshard {
namespace {

constexpr int kNoDeviceExitCode = 77;
constexpr uint64_t kNobodys = 1 << 20;  // an address of no allocation

// One copy of 16 bytes to it.
absl::Status WriteToNobodys(Device& device) {
  std::byte* const memory = device.memory().begin;
  std::byte table[512] = {};
  const Rule rule;
  std::memcpy(table, &rule, sizeof rule);
  Piece piece;
  piece.dest = kNobodys;
  piece.source = reinterpret_cast<uintptr_t>(memory + 1024);
  piece.size = 16;
  std::memcpy(table + 256, &piece, sizeof piece);
  CPSHARD_RETURN_IF_ERROR(CopyNow(memory, table, sizeof table));
  CPSHARD_RETURN_IF_ERROR(device.Launch(reinterpret_cast<const Rule*>(memory),
                                        reinterpret_cast<const Piece*>(memory + 256), 1));
  return device.Finish();
}

absl::Status RunOn(Executor& executor) {
  std::vector<std::byte> source(1000), dest(1000);
  FillWithNumbers(source.data(), 1000);
  const Task tasks[] = {Swap(source.data(), dest.data(), 1000)};
  CPSHARD_RETURN_IF_ERROR(executor.Run(tasks));
  return IsSwapped(dest.data(), source.data(), 1000) ? absl::OkStatus()
                                                     : absl::InternalError("wrong bytes");
}

absl::Status RunHere() {
  CPSHARD_ASSIGN_OR_RETURN(const auto executor, MakeCudaExecutor(0));
  return RunOn(*executor);
}

struct Ended {
  int status = -1;  // as of wait()
  std::string output;
};

// A stand-in loses its devices at their first launch.
Ended RunLosingChild() {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      "CPSHARD_STAND_IN_LOSE_AFTER=0 exec '" + self + "' --lose-device 2>&1";
  Ended ended;
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return ended;
  char part[256];
  while (std::fgets(part, sizeof part, pipe) != nullptr) ended.output += part;
  ended.status = pclose(pipe);
  return ended;
}

}  // namespace

int LoseDevice() {
  alarm(60);
  CudaExecutorOptions options;
  options.memory_bytes = options.pinned_bytes = 1 << 20;
  const auto device = MakeCudaDevice(0, options);
  const auto other = MakeCudaExecutor(0, options);
  const auto pool = MakePinnedPool(0, 1 << 20);
  for (const absl::Status& status : {device.status(), other.status(), pool.status()}) {
    if (status.ok()) continue;
    std::cout << status << "\n";
    const bool has_none = absl::IsFailedPrecondition(status) || absl::IsResourceExhausted(status);
    return has_none ? kNoDeviceExitCode : 1;
  }
  const absl::Status lost = WriteToNobodys(**device);
  const absl::Status later = RunOn(**other);
  std::cout << "launch: " << lost << "\nlater Run: " << later << "\n" << std::flush;
  return IsDeviceLost(lost) && IsDeviceLost(later) ? kDeviceLostExitCode : 1;
}

Item CheckLost() {
  Item item{"a lost device", "FAIL", ""};
  const Ended child = RunLosingChild();
  const int code = WIFEXITED(child.status) ? WEXITSTATUS(child.status) : -1;
  if (code == kNoDeviceExitCode) {
    item.verdict = "SKIP";
    item.reason = absl::StrCat("no device for a second process: ", child.output);
  } else if (code != kDeviceLostExitCode) {
    item.reason = absl::StrCat("the process that lost it ended with ", child.status,
                               " as of wait(): ", child.output);
  } else if (const absl::Status status = RunHere(); !status.ok()) {
    item.reason = absl::StrCat("another process lost it, and here: ", status.message());
  } else {
    item.verdict = "PASS";
  }
  return item;
}

}  // namespace cpshard
