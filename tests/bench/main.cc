// cpshard_bench: ratios against anchors measured in the same run. It prints; it never fails on a
// number.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/bench/bench.h"

int main(int argc, char** argv) {
  CLI::App app("Ratios of cpshard against anchors measured in the same run");
  std::string json;
  std::string only;
  int rounds = 11;
  app.add_option("--json", json, "write the table here as JSON");
  app.add_option("--only", only, "plan, documents, inspect, executor or packed")
      ->check(CLI::IsMember({"plan", "documents", "inspect", "executor", "packed"}));
  app.add_option("--rounds", rounds, "measured rounds per row")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);

  // As cpshardd: freed memory is kept, so that no pages are faulted in again and again.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2'000'000'000);

  cpshard::bench::Table table;
  table.PrintHead();
  if (only.empty() || only == "plan") cpshard::bench::AddPlanRows(rounds, table);
  if (only.empty() || only == "documents") cpshard::bench::AddPackedPlanRows(rounds, table);
  if (only.empty() || only == "inspect") cpshard::bench::AddInspectRows(rounds, table);
  if (only.empty() || only == "executor") cpshard::bench::AddExecutorRows(rounds, table);
  if (only.empty() || only == "packed") cpshard::bench::AddPackedExecutorRows(rounds, table);
  if (json.empty()) return 0;
  std::ofstream file(json);
  file << table.ToJson();
  file.close();
  if (file) return 0;
  std::fprintf(stderr, "error: cannot write %s\n", json.c_str());
  return 1;
}
