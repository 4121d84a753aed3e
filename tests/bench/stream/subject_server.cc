#include "tests/bench/stream/subject_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/stop_signals.h"
#include "core/batch/text_file.h"

namespace cpshard::bench {
namespace {

namespace fs = std::filesystem;

constexpr char kSocket[] = "cpshard.sock";
constexpr char kLog[] = "cpshardd.log";

std::string MakeFolder() {
  const HeldStopSignals held;
  std::string path = (fs::temp_directory_path() / "cpshard-bench-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) Fail("cannot make a folder for the server's socket");
  RemoveAtStopSignals(path, {kSocket, absl::StrCat(kSocket, ".lock"), kLog});
  return path;
}

void RemoveFolder(const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
}

std::string LogPath(const std::string& folder) { return absl::StrCat(folder, "/", kLog); }

// In the child: becomes the server; what it prints goes to `fd`. Settings in the environment are
// not for this one.
void BecomeServer(int fd, const std::string& folder, int64_t max_inflight_bytes) {
  const std::string program = fs::read_symlink("/proc/self/exe").parent_path() / "cpshardd";
  const std::string listen = absl::StrCat("--listen=127.0.0.1:0,unix:", folder, "/", kSocket);
  const std::string limit = absl::StrCat("--max-inflight-bytes=", max_inflight_bytes);
  const int log = open(LogPath(folder).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(fd, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  const char* const environment[] = {nullptr};
  execle(program.c_str(), "cpshardd", listen.c_str(), limit.c_str(), nullptr, environment);
  dprintf(log, "cannot run %s; build it first\n", program.c_str());
  _exit(127);
}

// "listening on ADDRESS": the address.
std::string ReadAddress(int fd, const std::string& folder) {
  constexpr absl::string_view kIntroduction = "listening on ";
  std::string line;
  char next = 0;
  while (ReceiveAll(fd, &next, 1) && next != '\n') line += next;
  if (absl::StartsWith(line, kIntroduction)) return line.substr(kIntroduction.size());
  Fail(absl::StrCat("cpshardd does not start: ",
                    ReadTextFile(LogPath(folder)).value_or("it has no log")));
}

}  // namespace

SubjectServer::SubjectServer(int64_t max_inflight_bytes)
    : folder_(MakeFolder()), process_(Process::Fork([this, max_inflight_bytes](int fd) {
        BecomeServer(fd, folder_, max_inflight_bytes);
      })) {
  KillAtStopSignals(process_.pid());
  WhenFailing([folder = folder_] { RemoveFolder(folder); });
  while (tcp_.empty() || unix_.empty()) {
    const std::string address = ReadAddress(process_.fd(), folder_);
    (absl::StartsWith(address, "unix:") ? unix_ : tcp_) = address;
  }
}

SubjectServer::~SubjectServer() {
  WhenFailing(nullptr);
  ForgetStopSignals();
  RemoveFolder(folder_);
}

}  // namespace cpshard::bench
