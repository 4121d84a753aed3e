#include "tests/client/server_program.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace cpshard {

std::string ServerProgram::FreeUnixAddress(const std::string& folder) {
  return "unix:" + folder + "/cpshard.sock";
}

std::string ServerProgram::FreeTcpAddress() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof name;
  bind(fd, reinterpret_cast<sockaddr*>(&name), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  close(fd);
  return "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
}

ServerProgram::ServerProgram(std::string address, std::vector<std::string> flags)
    : address_(std::move(address)), flags_(std::move(flags)) {}

ServerProgram::~ServerProgram() { Kill(); }

void ServerProgram::Start() {
  std::vector<std::string> words = {CPSHARD_SERVER_PROGRAM, "--listen=" + address_};
  words.insert(words.end(), flags_.begin(), flags_.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  execv(arguments[0], arguments.data());
  _exit(127);
}

void ServerProgram::Signal(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

void ServerProgram::Kill() {
  Signal(SIGKILL);
  if (pid_ > 0) Wait();
}

void ServerProgram::Terminate() { Signal(SIGTERM); }
void ServerProgram::Freeze() {
  Signal(SIGSTOP);
  waitpid(pid_, nullptr, WUNTRACED);
}

void ServerProgram::Thaw() { Signal(SIGCONT); }

int ServerProgram::Wait() {
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace cpshard
