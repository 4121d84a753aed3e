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
#include "client/cli/stop_signals.h"
#include "client/client.h"
#include "core/batch/text_file.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

namespace fs = std::filesystem;

constexpr char kSocket[] = "cpshard.sock";  // and its lock, made by the server
constexpr char kLog[] = "cpshardd.log";
constexpr absl::Duration kPause = absl::Milliseconds(5);  // between two looks

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

struct CommandLine {
  std::string program;
  std::vector<std::string> words;
  std::vector<char*> pointers;     // to the words, nullptr at the end
  std::vector<char*> environment;  // likewise
};

// In the child: becomes the server. Only async-signal-safe calls.
[[noreturn]] void Become(const CommandLine& command, int log, pid_t parent,
                         const HeldStopSignals& held) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // it died before the line above
  held.Release();
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execve(command.program.c_str(), command.pointers.data(), command.environment.data());
  _exit(127);
}

absl::StatusOr<pid_t> LaunchServer(const CommandLine& command, const std::string& log_path,
                                   const HeldStopSignals& held) {
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) return absl::ErrnoToStatus(errno, "cannot make the server's log");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(command, log, parent, held);
  const int error = errno;
  close(log);
  if (pid < 0) return absl::ErrnoToStatus(error, "cannot start the server");
  return pid;
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

// Leaves the child to waitpid.
bool HasEnded(pid_t child) {
  siginfo_t info{};
  return waitid(P_PID, child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

std::string Describe(int status) {
  if (WIFEXITED(status)) return absl::StrCat("exit status ", WEXITSTATUS(status));
  return absl::StrCat("signal ", WTERMSIG(status));
}

}  // namespace

absl::StatusOr<ServerProcess> ServerProcess::Start(const std::vector<std::string>& more,
                                                   const std::vector<std::string>& flags) {
  const HeldStopSignals held;
  ServerProcess server;
  CPSHARD_RETURN_IF_ERROR(FindServer().status());
  CPSHARD_ASSIGN_OR_RETURN(server.folder_, MakeFolder());
  RemoveAtStopSignals(server.folder_, {kSocket, absl::StrCat(kSocket, ".lock"), kLog});
  server.address_ = absl::StrCat("unix:", server.folder_, "/", kSocket);
  std::vector<std::string> all = {server.address_};
  all.insert(all.end(), more.begin(), more.end());
  server.num_addresses_ = all.size();
  server.words_ = {"cpshardd", absl::StrCat("--listen=", absl::StrJoin(all, ","))};
  server.words_.insert(server.words_.end(), flags.begin(), flags.end());
  CPSHARD_RETURN_IF_ERROR(server.Launch(held));
  return server;
}

absl::Status ServerProcess::Launch(const HeldStopSignals& held) {
  CommandLine command{.words = words_, .environment = PlainEnvironment()};
  CPSHARD_ASSIGN_OR_RETURN(command.program, FindServer());
  for (std::string& word : command.words) command.pointers.push_back(word.data());
  command.pointers.push_back(nullptr);
  CPSHARD_ASSIGN_OR_RETURN(pid_, LaunchServer(command, LogPath(), held));
  KillAtStopSignals(pid_);
  return absl::OkStatus();
}

absl::Status ServerProcess::KillAndStartAgain() {
  const HeldStopSignals held;
  KillAtStopSignals(-1);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  log_begin_ = Log().size();
  return Launch(held);
}

ServerProcess::ServerProcess(ServerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      words_(std::move(other.words_)),
      log_begin_(other.log_begin_),
      num_addresses_(other.num_addresses_),
      folder_(std::exchange(other.folder_, "")),
      address_(std::move(other.address_)) {}

ServerProcess::~ServerProcess() {
  if (pid_ > 0) (void)Stop(absl::Seconds(5));
  std::error_code error;
  if (folder_.empty()) return;
  fs::remove_all(folder_, error);
  ForgetStopSignals();
}

std::string ServerProcess::LogPath() const { return absl::StrCat(folder_, "/", kLog); }

std::string ServerProcess::Log() const { return ReadTextFile(LogPath()).value_or(""); }

// Asks in short turns, so that a server that has ended is noticed at once.
absl::StatusOr<ServerInfo> ServerProcess::WaitUntilReady() {
  CPSHARD_ASSIGN_OR_RETURN(
      const auto probe,
      Client::Connect(address_, {.deadline = absl::Milliseconds(200), .wait_for_ready = true}));
  const absl::Time give_up = absl::Now() + absl::Seconds(20);
  while (true) {
    CPSHARD_RETURN_IF_ERROR(CheckAlive());
    // One that is refused is connected again after a second only.
    const bool listens = Addresses().size() >= num_addresses_;
    if (listens || absl::Now() > give_up) {
      absl::StatusOr<ServerInfo> info = probe->GetServerInfo();
      if (info.ok() || absl::Now() > give_up) return info;
    }
    absl::SleepFor(kPause);
  }
}

std::vector<std::string> ServerProcess::Addresses() const {
  std::vector<std::string> addresses;
  const std::string log = Log();
  for (absl::string_view line : absl::StrSplit(absl::string_view(log).substr(log_begin_), '\n')) {
    if (absl::ConsumePrefix(&line, "listening on ")) addresses.emplace_back(line);
  }
  return addresses;
}

absl::Status ServerProcess::CheckAlive() {
  if (pid_ > 0 && !HasEnded(pid_)) return absl::OkStatus();
  KillAtStopSignals(-1);
  int status = 0;
  if (pid_ > 0) waitpid(pid_, &status, 0);
  pid_ = -1;
  return absl::UnavailableError(
      absl::StrCat("the server has ended: ", Describe(status), "; it said: ", Log()));
}

absl::Status ServerProcess::Stop(absl::Duration patience) {
  if (pid_ <= 0) return absl::OkStatus();
  kill(pid_, SIGTERM);
  const absl::Time give_up = absl::Now() + patience;
  while (!HasEnded(pid_) && absl::Now() < give_up) absl::SleepFor(kPause);
  KillAtStopSignals(-1);
  int status = 0;
  kill(pid_, SIGKILL);  // means nothing to one that has ended
  waitpid(pid_, &status, 0);
  pid_ = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the server did not stop cleanly at SIGTERM: ", Describe(status)));
}

}  // namespace cpshard
