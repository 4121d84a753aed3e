// cpshard_stream_bench: batches to a server process and their shards back, against anchors measured
// in the same run. It prints; it never fails on a number.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/replies.h"
#include "tests/bench/stream/copies.h"
#include "tests/bench/stream/loopback.h"
#include "tests/bench/stream/naive.h"
#include "tests/bench/stream/process.h"
#include "tests/bench/stream/raw_pingpong.h"
#include "tests/bench/stream/report.h"
#include "tests/bench/stream/rounds.h"
#include "tests/bench/stream/subject.h"
#include "tests/bench/stream/subject_server.h"

namespace cpshard::bench {
namespace {

struct Arguments {
  std::string json;
  std::vector<uint64_t> sizes = {64 << 10, 16 << 20, 128 << 20};
  Effort effort;
  bool host_network = false;
};

// A server and the client that knows its port.
struct Pair {
  Process server, client;
};

template <typename Server, typename Client>
Pair StartPair(Server serve, Client be_client) {
  Process server = Process::Fork(serve);
  const uint16_t port = Receive<uint16_t>(server.fd());
  return {std::move(server), Process::Fork([&](int fd) { be_client(fd, port); })};
}

Pair StartRaw(RawKind kind) {
  return StartPair([=](int fd) { RawServer(fd, kind); },
                   [=](int fd, uint16_t port) { RawClient(fd, kind, port); });
}

Pair StartNaive(NaiveKind kind) {
  return StartPair(NaiveServer, [=](int fd, uint16_t port) { NaiveClient(fd, kind, port); });
}

bool IsSmall(const TokenShape& shape) { return shape.bytes() < 1'000'000; }

// What the subject has under way when it has several.
int64_t Several(const TokenShape& shape) { return IsSmall(shape) ? 8 : 4; }

// On a stream; twice the bytes, for what stands between tensors.
int64_t LimitFor(const TokenShape& shape) {
  return std::max(2 * Several(shape) * shape.bytes(), StreamLimits().max_inflight_bytes);
}

// Each kind in processes of its own: settings of an allocator, and faults, are a process's.
struct Processes {
  explicit Processes(const TokenShape& shape) : subject(LimitFor(shape)) {}

  Process copies = Process::Fork([](int fd) { CopyClient(fd, CopyKind::kLibc); });
  Process stream_copies = Process::Fork([](int fd) { CopyClient(fd, CopyKind::kStreamingStores); });
  Pair raw = StartRaw(RawKind::kEcho);
  Pair raw_touch = StartRaw(RawKind::kShardPass);
  Pair naive = StartNaive(NaiveKind::kOneField);
  Pair naive_apart = StartNaive(NaiveKind::kFieldPerTensor);
  SubjectServer subject;  // before its clients: they know where it listens
  Process tcp = Process::Fork([this](int fd) { SubjectClient(fd, subject.tcp()); });
  Process unix_socket = Process::Fork([this](int fd) { SubjectClient(fd, subject.unix_path()); });
};

std::vector<Contender> Contenders(const Processes& p, const TokenShape& shape) {
  std::vector<Contender> contenders = {
      {"memcpy", Anchor::kMemcpy, &p.copies, 0, 1, 1},
      {"StreamCopy", Anchor::kNone, &p.stream_copies, 0, 1, 1},
      {"R: raw TCP", Anchor::kRaw, &p.raw.client, p.raw.server.pid()},
      {"R_touch: raw, shard pass", Anchor::kRawTouch, &p.raw_touch.client,
       p.raw_touch.server.pid()},
      {"N: naive protobuf", Anchor::kNaive, &p.naive.client, p.naive.server.pid()},
      {"naive, field per tensor", Anchor::kNone, &p.naive_apart.client, p.naive_apart.server.pid()},
  };
  for (const int64_t in_flight : {int64_t{1}, Several(shape)}) {
    const auto add = [&](const char* where, const Process& client) {
      contenders.push_back({absl::StrCat("cpshardd, ", where, ", ", in_flight, " in flight"),
                            Anchor::kNone, &client, p.subject.pid(), in_flight});
    };
    add("TCP", p.tcp);
    contenders.back().over_tcp = true;
    add("unix", p.unix_socket);
  }
  return contenders;
}

std::vector<StreamRow> Run(const Arguments& arguments, const Host& host) {
  PrintHost(host);
  PrintHead();
  std::vector<StreamRow> all;
  for (const uint64_t size : arguments.sizes) {
    const TokenShape shape = ShapeFor(static_cast<int64_t>(size));
    const Processes processes(shape);  // new ones: glibc's allocator adapts to what it has seen
    const std::vector<Contender> contenders = Contenders(processes, shape);
    const std::vector<StreamRow> rows =
        MakeRows(contenders, shape, MeasureInTurn(contenders, shape, arguments.effort));
    Print(rows);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  PrintGoals();
  return all;
}

int Main(int argc, char** argv) {
  CLI::App app("Batches through cpshardd against anchors measured in the same run");
  Arguments arguments;
  app.add_option("--json", arguments.json, "write the table here as JSON");
  app.add_option("--sizes", arguments.sizes, "bytes of a batch, e.g. 64KiB,16MiB,128MiB")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--rounds", arguments.effort.rounds, "measured rounds per row")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds-per-row", arguments.effort.seconds_per_row, "of a row in a round")
      ->check(CLI::PositiveNumber);
  app.add_flag("--host-network", arguments.host_network,
               "stay on the host's loopback and its congestion control");
  CLI11_PARSE(app, argc, argv);

  const Host host = DescribeHost(arguments.host_network ? HostLoopback() : EnterPrivateLoopback());
  const std::vector<StreamRow> rows = Run(arguments, host);
  if (arguments.json.empty()) return 0;
  std::ofstream file(arguments.json);
  file << ToJson(host, rows);
  file.close();
  if (file) return 0;
  std::fprintf(stderr, "error: cannot write %s\n", arguments.json.c_str());
  return 1;
}

}  // namespace
}  // namespace cpshard::bench

int main(int argc, char** argv) { return cpshard::bench::Main(argc, argv); }
