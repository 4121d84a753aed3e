// What the demo prints.
#pragma once

#include <string>
#include <vector>

#include "client/cli/demo/layouts.h"
#include "client/cli/demo/tally.h"
#include "client/cli/demo/text.h"
#include "proto/replies.h"

namespace cpshard::demo {

// What is sent, and what the words and figures of the table mean.
void PrintInput(const std::vector<Document>& documents, const std::vector<DemoLayout>& layouts);
void PrintServer(const ServerInfo& info, const std::string& address);

void PrintHeading();

// The figures of a layout, a line per stream, and the verdict.
void PrintLayout(const std::string& layout, int64_t loaders, const Figures& figures);

// One line on standard error that is written over, where that is a terminal.
class Progress {
 public:
  explicit Progress(std::string layout);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(const Tally& tally) const;
  void Clear() const;  // so that a line of another kind can be printed

 private:
  const std::string layout_;
  const bool on_;
};

}  // namespace cpshard::demo
