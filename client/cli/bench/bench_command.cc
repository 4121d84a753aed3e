#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"
#include "client/cli/bench/report.h"
#include "client/cli/bench/row.h"
#include "client/cli/commands.h"
#include "client/cli/server_process.h"
#include "client/client.h"
#include "core/plan/status_macros.h"

namespace cpshard::bench {
namespace {

struct Arguments {
  std::string server, json, executor;
  std::string options = R"({"round_robin": {}})";
  std::vector<double> megabytes = {1, 16, 128};
  int64_t in_flight = 4, cp_size = 4;
  double seconds = 2;
};

absl::StatusOr<ServerInfo> Greet(const std::string& address) {
  CPSHARD_ASSIGN_OR_RETURN(const auto client, Client::Connect(address));
  return client->GetServerInfo();
}

// So that what it was asked for fits in flight, and its own choice is what was asked for.
std::vector<std::string> FlagsOfOwnServer(const Arguments& arguments) {
  const double megabytes =
      *std::max_element(arguments.megabytes.begin(), arguments.megabytes.end());
  const TokenShape largest = TokenShape::For(megabytes * 1e6, arguments.cp_size);
  const int64_t in_flight =
      std::max(arguments.in_flight * largest.body_bytes(), StreamLimits().max_inflight_bytes);
  const int64_t pool = std::max<int64_t>(4 * in_flight, int64_t{8} << 30);
  std::vector<std::string> flags = {absl::StrCat("--max-inflight-bytes=", in_flight),
                                    absl::StrCat("--pool-bytes=", pool), "--session-bytes=0"};
  if (!arguments.executor.empty()) {
    flags.push_back(absl::StrCat("--executor=", arguments.executor));
  }
  return flags;
}

absl::StatusOr<std::vector<Row>> MeasureAll(const Arguments& arguments, const Setting& setting) {
  std::vector<Row> rows;
  for (const double megabytes : arguments.megabytes) {
    BufferPool pool;  // lets go of the size before
    CPSHARD_ASSIGN_OR_RETURN(const Work work,
                             MakeWork(megabytes * 1e6, setting.options, arguments.cp_size, pool));
    const int64_t in_flight =
        InFlight(arguments.in_flight, work.shape, setting.server.stream_limits);
    for (const Target& target : setting.targets) {
      CPSHARD_ASSIGN_OR_RETURN(
          Row row, MeasureRow(target, work, in_flight, arguments.seconds, setting.executor));
      PrintRow(row);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// Known before the rows are measured. Leaves what is in the file.
absl::Status CheckWritable(const std::string& path) {
  if (std::ofstream(path, std::ios::app)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("cannot write '", path, "'"));
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file.fail()) return absl::NotFoundError(absl::StrCat("cannot write '", path, "'"));
  return absl::OkStatus();
}

absl::Status RunBench(const Arguments& arguments) {
  Setting setting{.cp_size = arguments.cp_size, .congestion_control = TcpCongestionControl()};
  CPSHARD_ASSIGN_OR_RETURN(setting.options, ReadOptions(arguments.options));
  setting.options.SetDefaultPaddingTokenId(0);
  if (!arguments.json.empty()) CPSHARD_RETURN_IF_ERROR(CheckWritable(arguments.json));
  std::optional<ServerProcess> own;
  if (arguments.server.empty()) {
    CPSHARD_ASSIGN_OR_RETURN(ServerProcess server,
                             ServerProcess::Start({"127.0.0.1:0"}, FlagsOfOwnServer(arguments)));
    own.emplace(std::move(server));
    CPSHARD_ASSIGN_OR_RETURN(setting.server, own->WaitUntilReady());
    for (const std::string& address : own->Addresses()) {
      setting.targets.push_back({address, own->pid()});
    }
  } else {
    CPSHARD_ASSIGN_OR_RETURN(setting.server, Greet(arguments.server));
    setting.targets.push_back({arguments.server});
    setting.executor = ExecutorOr(arguments.executor, ExecutorKind::kAuto);
  }
  PrintSetting(setting);
  PrintHead();
  const absl::StatusOr<std::vector<Row>> rows = MeasureAll(arguments, setting);
  if (own) CPSHARD_RETURN_IF_ERROR(own->CheckAlive());  // says more than a row that it broke
  CPSHARD_RETURN_IF_ERROR(rows.status());
  if (own) CPSHARD_RETURN_IF_ERROR(own->Stop(absl::Seconds(10)));
  if (arguments.json.empty()) return absl::OkStatus();
  return WriteText(arguments.json, ToJson(setting, *rows));
}

}  // namespace
}  // namespace cpshard::bench

namespace cpshard {

void AddBenchCommand(CLI::App& app, Command& run) {
  CLI::App* command = app.add_subcommand("bench", "measure batches per second through a server");
  auto arguments = std::make_shared<bench::Arguments>();
  command
      ->add_option("--server", arguments->server,
                   "measure this cpshardd, host:port or unix:/path [default: one of its own]")
      ->type_name("ADDR")
      ->group("Server");
  DeclareExecutor(*command, arguments->executor, "who shards there [default: its own choice]")
      ->group("Server");
  command->add_option("--sizes", arguments->megabytes, "sizes of the batches, in MB (1e6 bytes)")
      ->delimiter(',')
      ->check(CLI::Range(0.001, 2000.0))
      ->type_name("MB,MB,...")
      ->default_str("1,16,128")
      ->group("Work");
  command->add_option("--inflight", arguments->in_flight, "batches sent and not answered")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->capture_default_str()
      ->group("Work");
  command->add_option("--seconds", arguments->seconds, "to measure every row")
      ->check(CLI::Range(0.01, 3600.0))
      ->type_name("SECONDS")
      ->capture_default_str()
      ->group("Work");
  command->add_option("--cp", arguments->cp_size, "ranks of the context-parallel group")
      ->check(CLI::Range(1, 4096))
      ->type_name("N")
      ->capture_default_str()
      ->group("Layout");
  command
      ->add_option("--options", arguments->options,
                   "the layout and its options as JSON, or a file of it")
      ->type_name("FILE|JSON")
      ->capture_default_str()
      ->group("Layout");
  command->add_option("--json", arguments->json, "write the table here, too, as JSON")
      ->type_name("FILE");
  command->callback(
      [arguments, &run] { run = [arguments] { return Outcome{bench::RunBench(*arguments)}; }; });
}

}  // namespace cpshard
