#include "client/cli/bench/report.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/bench/memcpy_anchor.h"
#include "client/expected_ranks.h"
#include "core/batch/text_file.h"

namespace cpshard::bench {
namespace {

constexpr char kLegend[] =
    "batches  input_ids, labels, position_ids int64 and padding_mask bool, [4, S]: %lld bytes a\n"
    "         token, in turn from %lld MB of them; cp_size %lld, all shards come back; the first\n"
    "         answer of every row is held against the shards made in process\n"
    "GB/s     to the server plus back, 1 GB = 1e9 bytes; p50, p99: from Submit to the shards, the\n"
    "         wait behind the other batches in flight included\n"
    "CPU      seconds per GB, user and system, all threads, of this process and of the server\n"
    "         (where it is its own)\n"
    "memcpy   GB/s of one thread copying a batch of this size, each byte counted once, in turn "
    "from\n"
    "         and to %lld MB, in this run; x memcpy: the row's GB/s over it\n";

constexpr long long kColdMegabytes = kColdBytes / 1'000'000;

std::string Fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

nlohmann::json ToJson(const Row& row) {
  nlohmann::json json = {{"transport", row.target.transport()},
                         {"address", row.target.address},
                         {"batch_bytes", row.shape.bytes()},
                         {"dims", {row.shape.rows, row.shape.columns}},
                         {"in_flight", row.in_flight},
                         {"batches", row.batches},
                         {"reconnects", row.reconnects},
                         {"resubmitted", row.resubmitted},
                         {"seconds", row.seconds},
                         {"batches_per_second", static_cast<double>(row.batches) / row.seconds},
                         {"gb_per_second", row.bytes_per_second / 1e9},
                         {"m_tokens_per_second", row.tokens_per_second / 1e6},
                         {"p50_ms", row.p50_seconds * 1e3},
                         {"p99_ms", row.p99_seconds * 1e3},
                         {"client_cpu_s_per_gb", row.client_seconds_per_byte * 1e9},
                         {"server_cpu_s_per_gb", nullptr},
                         {"memcpy_gb_per_second", row.memcpy_bytes_per_second / 1e9},
                         {"of_memcpy", row.bytes_per_second / row.memcpy_bytes_per_second}};
  if (row.server_seconds_per_byte) json["server_cpu_s_per_gb"] = *row.server_seconds_per_byte * 1e9;
  return json;
}

}  // namespace

std::string Setting::executor_name() const {
  const bool own = executor == ExecutorKind::kAuto || CheckExecutor(executor, server.executor).ok();
  return own && !server.executor.empty() ? server.executor : std::string(ToString(executor));
}

std::string TcpCongestionControl() {
  const std::string text =
      ReadTextFile("/proc/sys/net/ipv4/tcp_congestion_control").value_or("unknown");
  return std::string(absl::StripTrailingAsciiWhitespace(text));
}

void PrintSetting(const Setting& setting) {
  const std::string addresses = absl::StrJoin(
      setting.targets, ", ",
      [](std::string* out, const Target& target) { absl::StrAppend(out, target.address); });
  std::printf("server   cpshardd %s at %s, executor %s; %ld processors here\n",
              setting.server.version.c_str(), addresses.c_str(), setting.executor_name().c_str(),
              sysconf(_SC_NPROCESSORS_ONLN));
  std::printf("options  %s\n", setting.options.ToJson().c_str());
  std::printf("tcp      congestion control %s%s\n", setting.congestion_control.c_str(),
              setting.congestion_control == "bbr"
                  ? ", which paces loopback too; cubic and reno do not"
                  : "");
  const StreamLimits& limits = setting.server.stream_limits;
  std::printf("limits   of a stream: %lld batches and %.1f MB; no more is in flight\n",
              static_cast<long long>(limits.max_inflight_batches),
              static_cast<double>(limits.max_inflight_bytes) / 1e6);
  std::printf(kLegend, static_cast<long long>(kBytesPerToken), kColdMegabytes,
              static_cast<long long>(setting.cp_size), kColdMegabytes);
}

void PrintHead() {
  std::printf("\n%-9s  %8s  %9s  %9s  %7s  %10s  %8s  %8s  %8s  %10s  %7s  %8s\n", "transport",
              "MB", "in flight", "batches/s", "GB/s", "M tokens/s", "p50 ms", "p99 ms", "CPU here",
              "CPU server", "memcpy", "x memcpy");
  std::fflush(stdout);
}

void PrintRow(const Row& row) {
  const std::string server =
      row.server_seconds_per_byte ? Fixed(*row.server_seconds_per_byte * 1e9, 2) : "-";
  std::printf("%-9s  %8.*f  %9lld  %9.1f  %7.2f  %10.1f  %8.2f  %8.2f  %8.2f  %10s  %7.2f  %8.2f\n",
              row.target.transport().c_str(), row.shape.bytes() < 1'000'000 ? 3 : 1,
              static_cast<double>(row.shape.bytes()) / 1e6, static_cast<long long>(row.in_flight),
              static_cast<double>(row.batches) / row.seconds, row.bytes_per_second / 1e9,
              row.tokens_per_second / 1e6, row.p50_seconds * 1e3, row.p99_seconds * 1e3,
              row.client_seconds_per_byte * 1e9, server.c_str(), row.memcpy_bytes_per_second / 1e9,
              row.bytes_per_second / row.memcpy_bytes_per_second);
  if (row.reconnects + row.resubmitted > 0) {
    std::printf("  ^ disturbed: connected again %lld times, %lld batches sent again\n",
                static_cast<long long>(row.reconnects), static_cast<long long>(row.resubmitted));
  }
  std::fflush(stdout);
}

std::string ToJson(const Setting& setting, const std::vector<Row>& rows) {
  const StreamLimits& limits = setting.server.stream_limits;
  nlohmann::json list = nlohmann::json::array();
  for (const Row& row : rows) list.push_back(ToJson(row));
  const nlohmann::json json = {{"version", setting.server.version},
                               {"executor", setting.executor_name()},
                               {"processors", sysconf(_SC_NPROCESSORS_ONLN)},
                               {"tcp_congestion_control", setting.congestion_control},
                               {"options", setting.options.ToJson()},
                               {"cp_size", setting.cp_size},
                               {"bytes_per_token", kBytesPerToken},
                               {"max_inflight_bytes", limits.max_inflight_bytes},
                               {"max_inflight_batches", limits.max_inflight_batches},
                               {"rows", std::move(list)}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace cpshard::bench
