#include "client/cli/plan_draw.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"
#include "client/draw/panel.h"
#include "client/draw/svg.h"
#include "client/draw/terminal.h"
#include "core/plan/status_macros.h"

namespace cpshard {
namespace {

constexpr int64_t kColumnsOfAFile = 80, kMaxColumns = 1000;

absl::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// COLUMNS, where it is a number, within reason; else what the terminal says; a file or a pipe
// gets 80.
int64_t TerminalColumns() {
  int64_t columns;
  if (absl::SimpleAtoi(Environment("COLUMNS"), &columns) && columns > 0) {
    return std::min(columns, kMaxColumns);
  }
  winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kColumnsOfAFile;
}

draw::ColourDepth TerminalColours() {
  if (isatty(STDOUT_FILENO) == 0 || !Environment("NO_COLOR").empty() ||
      Environment("TERM") == "dumb") {
    return draw::ColourDepth::kNone;
  }
  const absl::string_view colours = Environment("COLORTERM");
  if (colours == "truecolor" || colours == "24bit") return draw::ColourDepth::kTrue;
  const bool many = absl::StrContains(Environment("TERM"), "256color") || !colours.empty();
  return many ? draw::ColourDepth::k256 : draw::ColourDepth::kNone;
}

// The key of the options that names the layout; of a model, what it resolved to.
std::string TitleOf(const std::string& json, const PlanSummary& summary) {
  if (summary.choice) return summary.choice->layout;
  const nlohmann::json options = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  for (const std::string& layout : Options::BuiltLayouts()) {
    if (options.is_object() && options.contains(layout)) return layout;
  }
  return "layout";
}

absl::StatusOr<draw::Panel> PanelOf(const std::string& text_or_file, PlanSummary summary) {
  CPSHARD_ASSIGN_OR_RETURN(const Options options, ReadOptions(text_or_file));
  const std::string json = options.ToJson();
  std::string title = TitleOf(json, summary);
  return draw::MakePanel(std::move(title), json, std::move(summary));
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write '", path, "'"));
}

std::string CheckNotEmpty(const std::string& text) {
  return text.empty() ? "the value is empty" : "";
}

}  // namespace

void DeclareDrawArguments(CLI::App& command, DrawArguments& arguments) {
  command.add_flag("--draw", arguments.draw, "as a picture, in the terminal");
  command.add_option("--svg", arguments.svg, "as a picture, in a file")
      ->check(CLI::Validator(CheckNotEmpty, "FILE.svg"));
  command
      .add_option("--compare", arguments.compare,
                  "with --draw or --svg: sharding options to draw below, repeatable")
      ->type_name("FILE|JSON")
      ->allow_extra_args(false);
}

void CheckDrawArguments(const DrawArguments& arguments, bool has_batch) {
  if (arguments.wanted() && !has_batch) {
    throw CLI::ValidationError(arguments.draw ? "--draw" : "--svg",
                               "give --in or --len: a picture is of a batch or a row");
  }
  if (!arguments.compare.empty() && !arguments.wanted()) {
    throw CLI::ValidationError("--compare", "give --draw or --svg with it: it draws");
  }
}

absl::StatusOr<std::string> DrawPlans(const DrawArguments& arguments, const std::string& options,
                                      PlanSummary summary, const PlanWith& plan) {
  std::vector<draw::Panel> panels;
  CPSHARD_ASSIGN_OR_RETURN(draw::Panel first, PanelOf(options, std::move(summary)));
  panels.push_back(std::move(first));
  for (const std::string& other : arguments.compare) {
    CPSHARD_ASSIGN_OR_RETURN(PlanSummary compared, plan(other));
    CPSHARD_ASSIGN_OR_RETURN(draw::Panel panel, PanelOf(other, std::move(compared)));
    panels.push_back(std::move(panel));
  }
  std::string text;
  if (arguments.draw) {
    CPSHARD_ASSIGN_OR_RETURN(text, draw::DrawInTerminal(panels, {.columns = TerminalColumns(),
                                                                 .depth = TerminalColours()}));
  }
  if (!arguments.svg.empty()) {
    CPSHARD_RETURN_IF_ERROR(WriteFile(arguments.svg, draw::DrawSvg(panels)));
  }
  return text;
}

}  // namespace cpshard
