#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/demo/check.h"
#include "client/cli/demo/pack.h"
#include "client/cli/demo/server_process.h"
#include "client/cli/demo/text.h"
#include "client/client.h"
#include "core/plan/status_macros.h"

namespace cpshard::demo {
namespace {

constexpr int64_t kCpSize = 4;

struct Arguments {
  std::vector<std::string> files;
  size_t max_bytes = size_t{4} << 20;
};

// One layout of the demo, for the product and for the restatement.
struct DemoLayout {
  const char* name;
  std::string options;
  oracle::Options restated;
};

std::vector<DemoLayout> Layouts() {
  std::vector<DemoLayout> layouts;
  for (const char* name : {"contiguous", "round_robin"}) {
    oracle::Options restated;
    restated.layout = name;
    restated.padding_token_id = kPadToken;
    layouts.push_back(
        {name, absl::StrCat("{\"", name, "\":{},\"padding_token_id\":", kPadToken, "}"), restated});
  }
  return layouts;
}

struct Figures {
  int64_t batches = 0, real_tokens = 0, columns = 0, bytes = 0;
  std::vector<int64_t> tokens_of_rank = std::vector<int64_t>(kCpSize);
  absl::Duration sharding;  // in calls of the server
  std::string difference;   // the first
};

// Real tokens of every rank: those that the mask does not call padding.
void CountTokens(const std::vector<RankShard>& shards, Figures& figures) {
  for (size_t rank = 0; rank < shards.size() && rank < figures.tokens_of_rank.size(); ++rank) {
    const Tensor* mask = shards[rank].batch.FindTensor("padding_mask");
    if (mask == nullptr) continue;
    figures.columns += static_cast<int64_t>(mask->buffer.size());
    for (std::byte pad : mask->bytes()) {
      figures.tokens_of_rank[rank] += pad == std::byte{0} ? 1 : 0;
    }
  }
}

class Progress {
 public:
  Progress(const char* name, size_t total)
      : name_(name), total_(total), on_(isatty(STDERR_FILENO) != 0) {}
  ~Progress() {
    if (on_) std::fprintf(stderr, "\r\033[K");
  }
  void Step(size_t done) const {
    if (on_) std::fprintf(stderr, "\r  %-12s %zu of %zu batches", name_, done, total_);
  }

 private:
  const char* name_;
  const size_t total_;
  const bool on_;
};

absl::StatusOr<Figures> RunLayout(Client& client, const DemoLayout& layout,
                                  const std::vector<PackedBatch>& batches, BufferPool& pool) {
  CPSHARD_ASSIGN_OR_RETURN(const Options options, Options::FromJson(layout.options));
  const std::unique_ptr<Executor> executor = MakeCpuExecutor();
  Figures figures;
  const Progress progress(layout.name, batches.size());
  for (const PackedBatch& packed : batches) {
    const absl::Time begin = absl::Now();
    CPSHARD_ASSIGN_OR_RETURN(const ShardResult result,
                             client.ShardBatch(packed.batch, options, kCpSize, {}));
    figures.sharding += absl::Now() - begin;
    ++figures.batches;
    figures.real_tokens += packed.real_tokens;
    for (const Tensor& tensor : packed.batch.tensors) figures.bytes += tensor.buffer.size();
    CountTokens(result.shards, figures);
    figures.difference =
        DifferenceFromContract(packed.batch, layout.restated, kCpSize, result.shards);
    if (figures.difference.empty()) {
      figures.difference = DifferenceAfterGather(packed.batch, result.shards, *executor, pool);
    }
    if (!figures.difference.empty()) {
      figures.difference = absl::StrCat("batch ", figures.batches - 1, ": ", figures.difference);
      return figures;
    }
    progress.Step(figures.batches);
  }
  return figures;
}

void PrintHeading() {
  std::printf("\n%-12s %8s %10s %9s %15s %8s   %s\n", "layout", "batches", "tokens", "padding",
              "M tokens/s", "MB/s", "tokens per rank");
}

void Print(const DemoLayout& layout, const Figures& figures) {
  const double columns = static_cast<double>(figures.columns);
  const double pads = columns - static_cast<double>(figures.real_tokens);
  const double seconds = absl::ToDoubleSeconds(figures.sharding);
  std::printf("%-12s %8lld %10lld %7.1f %% %15.2f %8.0f   %s\n", layout.name,
              static_cast<long long>(figures.batches), static_cast<long long>(figures.real_tokens),
              columns > 0 ? 100.0 * pads / columns : 0.0,
              static_cast<double>(figures.real_tokens) / seconds / 1e6,
              static_cast<double>(figures.bytes) / seconds / 1e6,
              absl::StrJoin(figures.tokens_of_rank, " ").c_str());
  std::printf("%-12s %s\n", "",
              figures.difference.empty() ? "EQUAL"
                                         : absl::StrCat("DIFFERENT: ", figures.difference).c_str());
}

// Asks in short turns, so that a server that has ended is noticed at once.
absl::StatusOr<ServerInfo> WaitUntilReady(ServerProcess& server) {
  CPSHARD_ASSIGN_OR_RETURN(const auto probe,
                           Client::Connect(server.address(), {.deadline = absl::Milliseconds(200),
                                                              .wait_for_ready = true}));
  const absl::Time give_up = absl::Now() + absl::Seconds(20);
  while (true) {
    absl::StatusOr<ServerInfo> info = probe->GetServerInfo();
    CPSHARD_RETURN_IF_ERROR(server.CheckAlive());
    if (info.ok() || absl::Now() > give_up) return info;
  }
}

void PrintServer(const ServerInfo& info, const ServerProcess& server) {
  std::printf("server   cpshardd %s at %s, executor %s\n", info.version.c_str(),
              server.address().c_str(), info.executor.c_str());
}

void PrintInput(const std::vector<Document>& documents, const PackOptions& pack) {
  std::printf("text     %zu documents, from %s to %s\n", documents.size(),
              documents.front().name.c_str(), documents.back().name.c_str());
  std::printf(
      "batches  byte tokens packed into rows [%lld, %lld], and the last batch again as [%lld, "
      "%lld]; "
      "cp_size %lld\n",
      static_cast<long long>(pack.rows), static_cast<long long>(pack.length),
      static_cast<long long>(pack.rows), static_cast<long long>(pack.last_length),
      static_cast<long long>(kCpSize));
  std::printf(
      "streams  input_ids, labels, position_ids, padding_mask; no document lengths are sent, "
      "since\n         round_robin cannot keep documents apart and refuses a batch that has "
      "them\n");
  std::printf(
      "EQUAL =  every element of every shard is what the restated contract says, and every "
      "stream,\n         gathered and trimmed, is bit for bit what was sent\n");
}

absl::StatusOr<bool> RunDemo(const Arguments& arguments) {
  CPSHARD_ASSIGN_OR_RETURN(ServerProcess server, ServerProcess::Start());
  BufferPool pool;
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<Document> documents,
                           ReadDocuments(arguments.files, arguments.max_bytes));
  const PackOptions pack;
  CPSHARD_ASSIGN_OR_RETURN(const std::vector<PackedBatch> batches, Pack(documents, pack, pool));
  PrintInput(documents, pack);
  CPSHARD_ASSIGN_OR_RETURN(
      const auto client,
      Client::Connect(server.address(), {.deadline = absl::Seconds(20), .wait_for_ready = true}));
  CPSHARD_ASSIGN_OR_RETURN(const ServerInfo info, WaitUntilReady(server));
  PrintServer(info, server);
  PrintHeading();
  bool different = false;
  for (const DemoLayout& layout : Layouts()) {
    CPSHARD_ASSIGN_OR_RETURN(const Figures figures, RunLayout(*client, layout, batches, pool));
    Print(layout, figures);
    different = different || !figures.difference.empty();
  }
  CPSHARD_RETURN_IF_ERROR(server.Stop(absl::Seconds(10)));
  return different;
}

}  // namespace
}  // namespace cpshard::demo

namespace cpshard {

void AddDemoCommand(CLI::App& app, Command& run) {
  CLI::App* command =
      app.add_subcommand("demo", "shard real text through a real server and prove the result");
  auto arguments = std::make_shared<demo::Arguments>();
  command->add_option("files", arguments->files, "text files; default: text found on the machine");
  command->add_option("--max-bytes", arguments->max_bytes, "read at most this much text")
      ->check(CLI::Range(size_t{1}, size_t{1} << 30));
  command->callback([arguments, &run] {
    run = [arguments] {
      std::setvbuf(stdout, nullptr, _IOLBF, 0);
      const absl::StatusOr<bool> different = demo::RunDemo(*arguments);
      return Outcome{different.status(), different.ok() && *different};
    };
  });
}

}  // namespace cpshard
