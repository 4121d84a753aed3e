#include "client/cli/demo/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "core/plan/status_macros.h"

namespace cpshard::demo {
namespace {

constexpr size_t kMaxErrorBytes = 8 << 10;

struct Pipe {
  int read = -1, write = -1;
};

// Standard input, output and error of the child.
using Pipes = std::array<Pipe, 3>;

void Close(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

void Close(Pipes& pipes) {
  for (Pipe& pipe : pipes) {
    Close(pipe.read);
    Close(pipe.write);
  }
}

absl::Status Open(Pipes& pipes) {
  for (Pipe& pipe : pipes) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "no pipe for a process");
    pipe = {ends[0], ends[1]};
  }
  for (size_t i : {STDOUT_FILENO, STDERR_FILENO}) fcntl(pipes[i].read, F_SETFL, O_NONBLOCK);
  return absl::OkStatus();
}

// In the child: becomes the program. Only async-signal-safe calls.
[[noreturn]] void Become(char* const* words, const Pipes& pipes, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before the line above
  dup2(pipes[STDIN_FILENO].read, STDIN_FILENO);
  dup2(pipes[STDOUT_FILENO].write, STDOUT_FILENO);
  dup2(pipes[STDERR_FILENO].write, STDERR_FILENO);
  execv("/proc/self/exe", words);
  _exit(127);
}

absl::StatusOr<pid_t> Launch(std::vector<std::string>& words, const Pipes& pipes) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(pointers.data(), pipes, parent);
  if (pid < 0) return absl::ErrnoToStatus(errno, "cannot start a process");
  return pid;
}

// Appends what is there; closes `fd` at its end.
void ReadInto(int& fd, std::string& text) {
  char buffer[4096];
  while (fd >= 0) {
    const ssize_t size = read(fd, buffer, sizeof buffer);
    if (size > 0) {
      text.append(buffer, size);
    } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
      Close(fd);
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(std::vector<std::string> words) {
  words.insert(words.begin(), "cpshard");
  Pipes pipes;
  const absl::Status opened = Open(pipes);
  const absl::StatusOr<pid_t> pid =
      opened.ok() ? Launch(words, pipes) : absl::StatusOr<pid_t>(opened);
  ChildProcess child;
  if (pid.ok()) {
    child.pid_ = *pid;
    child.in_ = std::exchange(pipes[STDIN_FILENO].write, -1);
    child.out_ = std::exchange(pipes[STDOUT_FILENO].read, -1);
    child.err_ = std::exchange(pipes[STDERR_FILENO].read, -1);
  }
  Close(pipes);
  CPSHARD_RETURN_IF_ERROR(pid.status());
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      in_(std::exchange(other.in_, -1)),
      out_(std::exchange(other.out_, -1)),
      err_(std::exchange(other.err_, -1)),
      unfinished_(std::move(other.unfinished_)),
      errors_(std::move(other.errors_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(in_, other.in_);
  std::swap(out_, other.out_);
  std::swap(err_, other.err_);
  std::swap(unfinished_, other.unfinished_);
  std::swap(errors_, other.errors_);
  return *this;
}

ChildProcess::~ChildProcess() {
  Close(in_);
  Close(out_);
  Close(err_);
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ChildProcess::AddTo(std::vector<pollfd>& watched) const {
  if (out_ >= 0) watched.push_back({.fd = out_, .events = POLLIN});
  if (err_ >= 0) watched.push_back({.fd = err_, .events = POLLIN});
}

std::vector<std::string> ChildProcess::ReadLines() {
  ReadInto(out_, unfinished_);
  ReadInto(err_, errors_);
  errors_.resize(std::min(errors_.size(), kMaxErrorBytes));
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end; (end = unfinished_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(unfinished_.substr(begin, end - begin));
  }
  unfinished_.erase(0, begin);
  return lines;
}

void ChildProcess::GoOn() const {
  if (in_ < 0) return;
  while (write(in_, "\n", 1) < 0 && errno == EINTR) {
  }
}

int ChildProcess::WaitStatus() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

void ChildProcess::Kill() const {
  if (pid_ > 0) kill(pid_, SIGKILL);
}

}  // namespace cpshard::demo
