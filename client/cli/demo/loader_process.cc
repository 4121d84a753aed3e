#include "client/cli/demo/loader_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cpshard::demo {
namespace {

constexpr size_t kMaxErrorBytes = 8 << 10;

std::vector<std::string> CommandLine(const LoaderTask& task) {
  std::vector<std::string> words = {"cpshard",
                                    "demo-loader",
                                    absl::StrCat("--server=", task.server),
                                    absl::StrCat("--layout=", task.layout),
                                    absl::StrCat("--loader=", task.loader),
                                    absl::StrCat("--loaders=", task.loaders),
                                    absl::StrCat("--done=", task.done),
                                    absl::StrCat("--batches=", task.batches),
                                    absl::StrCat("--max-bytes=", task.max_bytes),
                                    "--"};
  words.insert(words.end(), task.files.begin(), task.files.end());
  return words;
}

// In the child: becomes the loader. Only async-signal-safe calls.
[[noreturn]] void Become(char* const* words, int out, int err, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before the line above
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execv("/proc/self/exe", words);
  _exit(127);
}

struct Pipe {
  int read = -1, write = -1;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "no pipe for a loader");
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return Pipe{ends[0], ends[1]};
}

void Close(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
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

absl::StatusOr<LoaderProcess> LoaderProcess::Start(const LoaderTask& task) {
  std::vector<std::string> words = CommandLine(task);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  LoaderProcess loader;
  absl::StatusOr<Pipe> out = MakePipe();
  if (!out.ok()) return out.status();
  loader.out_ = out->read;
  absl::StatusOr<Pipe> err = MakePipe();
  if (err.ok()) {
    loader.err_ = err->read;
    const pid_t parent = getpid();
    loader.pid_ = fork();
    if (loader.pid_ == 0) Become(pointers.data(), out->write, err->write, parent);
    if (loader.pid_ < 0) err = absl::ErrnoToStatus(errno, "cannot start a loader");
  }
  close(out->write);
  if (!err.ok()) return err.status();
  close(err->write);
  return loader;
}

LoaderProcess::LoaderProcess(LoaderProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      out_(std::exchange(other.out_, -1)),
      err_(std::exchange(other.err_, -1)),
      unfinished_(std::move(other.unfinished_)),
      errors_(std::move(other.errors_)) {}

LoaderProcess& LoaderProcess::operator=(LoaderProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(out_, other.out_);
  std::swap(err_, other.err_);
  std::swap(unfinished_, other.unfinished_);
  std::swap(errors_, other.errors_);
  return *this;
}

LoaderProcess::~LoaderProcess() {
  Close(out_);
  Close(err_);
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void LoaderProcess::AddTo(std::vector<pollfd>& watched) const {
  if (out_ >= 0) watched.push_back({.fd = out_, .events = POLLIN});
  if (err_ >= 0) watched.push_back({.fd = err_, .events = POLLIN});
}

std::vector<std::string> LoaderProcess::ReadLines() {
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

int LoaderProcess::WaitStatus() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

void LoaderProcess::Kill() const {
  if (pid_ > 0) kill(pid_, SIGKILL);
}

}  // namespace cpshard::demo
