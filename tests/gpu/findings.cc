#include "tests/gpu/findings.h"

#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/gpu/anchors.h"

namespace cpshard {
namespace {

std::string JsonOf(const Item& item) {
  return absl::StrCat("{\"name\": ", Quoted(item.name), ", \"verdict\": ", Quoted(item.verdict),
                      ", \"reason\": ", Quoted(item.reason), ", \"goal\": ", item.goal, "}");
}

template <typename T>
void WriteList(const std::vector<T>& values, std::ofstream& out) {
  for (size_t i = 0; i < values.size(); ++i) {
    out << (i == 0 ? "\n  " : ",\n  ") << JsonOf(values[i]);
  }
}

}  // namespace

void Findings::Add(Item item, bool is_shown) {
  if (is_shown || item.verdict != "PASS") {
    std::printf("%s  %s%s%s\n", item.verdict.c_str(), item.name.c_str(),
                item.reason.empty() ? "" : ": ", item.reason.c_str());
  }
  has_failed_ = has_failed_ || item.verdict == "FAIL";
  items_.push_back(std::move(item));
  Write();
}

void Findings::Add(GpuRow row) {
  if (rows_.empty()) std::printf("%s\n", RowHeading().c_str());
  std::printf("%s\n", LineOf(row).c_str());
  const Verdict verdict = VerdictOf(row);
  if (verdict != Verdict::kNone) {
    items_.push_back({row.what, std::string(Name(verdict)), ReasonOf(row), row.goal});
    has_failed_ = has_failed_ || verdict == Verdict::kFail;
  }
  rows_.push_back(std::move(row));
  Write();
}

void Findings::Write() const {
  if (path_.empty()) return;
  const std::string next = path_ + ".next";
  std::ofstream out(next);
  out << "{\"device\": " << Quoted(device_) << ",\n \"build\": " << Quoted(BuildOfThis())
      << ",\n \"cuda\": " << Quoted(CudaVersions()) << ",\n \"items\": [";
  WriteList(items_, out);
  out << "],\n \"rows\": [";
  WriteList(rows_, out);
  out << "]}\n";
  out.close();
  if (!out || std::rename(next.c_str(), path_.c_str()) != 0) {
    std::fprintf(stderr, "gpu_check: cannot write %s\n", path_.c_str());
    has_failed_ = true;
  }
}

}  // namespace cpshard
