#include "client/cli/server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "core/batch/text_file.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::string> FindServer() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path server = self.parent_path() / "cpshardd";
  if (!error && fs::exists(server, error)) return server.string();
  return absl::NotFoundError(
      absl::StrCat("no server program at '", server.string(), "'; build it first (./dev build)"));
}

absl::StatusOr<std::string> MakeFolder() {
  std::error_code error;
  std::string path = (fs::temp_directory_path(error) / "cpshard-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, "cannot make a folder for the server's socket");
  }
  return path;
}

// In the child: becomes the server. Only async-signal-safe calls.
[[noreturn]] void Become(const char* program, const char* listen, const char* log,
                         char* const* environment) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int file = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  execle(program, "cpshardd", listen, static_cast<char*>(nullptr), environment);
  _exit(127);
}

// This process's, without settings of a server that the user may have there.
std::vector<char*> PlainEnvironment() {
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!absl::StartsWith(*variable, "CPSHARD_")) variables.push_back(*variable);
  }
  variables.push_back(nullptr);
  return variables;
}

std::string Describe(int status) {
  if (WIFEXITED(status)) return absl::StrCat("exit status ", WEXITSTATUS(status));
  return absl::StrCat("signal ", WTERMSIG(status));
}

}  // namespace

absl::StatusOr<ServerProcess> ServerProcess::Start(const std::vector<std::string>& more) {
  CPSHARD_ASSIGN_OR_RETURN(const std::string program, FindServer());
  ServerProcess server;
  CPSHARD_ASSIGN_OR_RETURN(server.folder_, MakeFolder());
  server.address_ = absl::StrCat("unix:", server.folder_, "/cpshard.sock");
  std::vector<std::string> all = {server.address_};
  all.insert(all.end(), more.begin(), more.end());
  server.num_addresses_ = all.size();
  const std::string listen = absl::StrCat("--listen=", absl::StrJoin(all, ","));
  const std::string log = server.LogPath();
  const std::vector<char*> environment = PlainEnvironment();
  server.pid_ = fork();
  if (server.pid_ == 0) {
    Become(program.c_str(), listen.c_str(), log.c_str(), environment.data());
  }
  if (server.pid_ < 0) return absl::ErrnoToStatus(errno, "cannot start the server");
  return server;
}

ServerProcess::ServerProcess(ServerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      num_addresses_(other.num_addresses_),
      folder_(std::exchange(other.folder_, "")),
      address_(std::move(other.address_)) {}

ServerProcess::~ServerProcess() {
  if (pid_ > 0) (void)Stop(absl::Seconds(5));
  std::error_code error;
  if (!folder_.empty()) fs::remove_all(folder_, error);
}

std::string ServerProcess::LogPath() const { return folder_ + "/cpshardd.log"; }

std::string ServerProcess::Log() const { return ReadTextFile(LogPath()).value_or(""); }

// Asks in short turns, so that a server that has ended is noticed at once.
absl::StatusOr<ServerInfo> ServerProcess::WaitUntilReady() {
  CPSHARD_ASSIGN_OR_RETURN(
      const auto probe,
      Client::Connect(address_, {.deadline = absl::Milliseconds(200), .wait_for_ready = true}));
  const absl::Time give_up = absl::Now() + absl::Seconds(20);
  while (true) {
    absl::StatusOr<ServerInfo> info = probe->GetServerInfo();
    CPSHARD_RETURN_IF_ERROR(CheckAlive());
    const bool ready = info.ok() && Addresses().size() >= num_addresses_;
    if (ready || absl::Now() > give_up) return info;
  }
}

std::vector<std::string> ServerProcess::Addresses() const {
  std::vector<std::string> addresses;
  const std::string log = Log();
  for (absl::string_view line : absl::StrSplit(log, '\n')) {
    if (absl::ConsumePrefix(&line, "listening on ")) addresses.emplace_back(line);
  }
  return addresses;
}

absl::Status ServerProcess::CheckAlive() {
  int status = 0;
  if (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == 0) return absl::OkStatus();
  pid_ = -1;
  return absl::UnavailableError(
      absl::StrCat("the server has ended: ", Describe(status), "; it said: ", Log()));
}

absl::Status ServerProcess::Stop(absl::Duration patience) {
  if (pid_ <= 0) return absl::OkStatus();
  kill(pid_, SIGTERM);
  int status = 0;
  pid_t ended = 0;
  const absl::Time give_up = absl::Now() + patience;
  while ((ended = waitpid(pid_, &status, WNOHANG)) == 0 && absl::Now() < give_up) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  if (ended == 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the server did not stop cleanly at SIGTERM: ", Describe(status)));
}

}  // namespace cpshard
