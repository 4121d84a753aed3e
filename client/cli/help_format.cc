#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/help.h"

namespace cpshard {
namespace {

constexpr int kNameColumns = 27;

// Words on lines of `width` characters; a longer word gets a line of its own.
std::string Wrapped(const std::vector<std::string>& words, int width, const std::string& indent) {
  std::string text;
  int used = 0;
  for (const std::string& word : words) {
    const int length = static_cast<int>(word.size());
    if (used > 0 && used + 1 + length > width) {
      absl::StrAppend(&text, "\n", indent);
      used = static_cast<int>(indent.size());
    } else if (used > 0) {
      text += ' ';
      ++used;
    }
    text += word;
    used += length;
  }
  return text;
}

// CLI11 says "TEXT:N|none" where a validator tells what is accepted, "INT:INT in [1 - 64]" where a
// number has a range.
std::string TypeOf(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  const std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  if (colon == std::string::npos) return type;
  return absl::StartsWith(type, "TEXT:") ? type.substr(colon + 1) : type.substr(0, colon);
}

std::string RangeOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t range = type.find(" in [");
  return range == std::string::npos ? "" : type.substr(range + 4);
}

std::string NamesOf(const std::set<CLI::Option*>& options) {
  std::set<std::string> names;  // the other set is in the order of addresses
  for (const CLI::Option* option : options) names.insert(option->get_name());
  return absl::StrJoin(names, ", ");
}

// "[required]", "[1 - 64]", "[default: 4]", "[not with --in]", "[with --slot]"
std::vector<std::string> NotesOn(const CLI::Option& option) {
  std::vector<std::string> notes;
  if (option.get_required()) notes.push_back("[required]");
  if (!RangeOf(option).empty()) notes.push_back(RangeOf(option));
  if (!option.get_default_str().empty()) {
    notes.push_back(absl::StrCat("[default: ", option.get_default_str(), "]"));
  }
  if (!option.get_excludes().empty()) {
    notes.push_back(absl::StrCat("[not with ", NamesOf(option.get_excludes()), "]"));
  }
  if (!option.get_needs().empty()) {
    notes.push_back(absl::StrCat("[with ", NamesOf(option.get_needs()), "]"));
  }
  return notes;
}

class HelpFormat : public CLI::Formatter {
 public:
  HelpFormat() {
    column_width(kNameColumns);
    label("Positionals", "Files");
  }

  std::string make_description(const CLI::App* app) const override {
    const std::string of = app->get_parent() == nullptr
                               ? ""
                               : absl::StrCat(app->get_parent()->get_name(), " ", app->get_name());
    const std::string text = absl::StrCat(of, of.empty() ? "" : ": ", app->get_description());
    return Wrapped(absl::StrSplit(text, ' '), kHelpColumns, "") + "\n\n";
  }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::vector<std::string> words = {"Usage:", name};
    for (const CLI::Option* option : app->get_options()) {
      if (!option->get_required() || option->get_positional()) continue;
      words.push_back(absl::StrCat(option->get_name(), " ", TypeOf(*option)));
    }
    words.push_back(app->get_subcommands({}).empty() ? "[OPTIONS]" : "COMMAND [OPTIONS]");
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional()) words.push_back(make_option_usage(option));
    }
    return Wrapped(words, kHelpColumns, std::string(7, ' ')) + "\n";
  }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return absl::StrCat(make_description(app), make_usage(app, std::move(name)),
                        make_subcommands(app, mode), make_positionals(app), GroupsOf(app), "\n",
                        make_footer(app));
  }

  std::string make_subcommand(const CLI::App* app) const override {
    std::stringstream out;
    const std::vector<std::string> words = absl::StrSplit(app->get_description(), ' ');
    CLI::detail::format_help(out, app->get_name(), Wrapped(words, kHelpColumns - kNameColumns, ""),
                             kNameColumns);
    return out.str();
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = TypeOf(*option);
    return type.empty() || option->get_positional() ? "" : absl::StrCat(" ", type);
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::vector<std::string> words = absl::StrSplit(option->get_description(), ' ');
    for (std::string& note : NotesOn(*option)) words.push_back(std::move(note));
    return Wrapped(words, kHelpColumns - kNameColumns, "");
  }

 private:
  // The server comes behind what the command is about, and last what has no group of its own,
  // --help among it.
  std::string GroupsOf(const CLI::App* app) const {
    std::string named, server, others;
    for (const std::string& group : app->get_groups()) {
      const auto options = app->get_options([&](const CLI::Option* option) {
        return option->get_group() == group && option->nonpositional();
      });
      if (group.empty() || options.empty()) continue;
      std::string& text = group == "Options" ? others : group == "Server" ? server : named;
      text += make_group(group, false, options);
    }
    return named + server + others;
  }
};

}  // namespace

void SetHelpFormat(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormat>());
  app.set_help_flag("-h,--help", "print this help");
}

std::string UsageErrorLine(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = app.get_name();
  for (const CLI::App* named : app.get_subcommands()) {
    absl::StrAppend(&command, " ", named->get_name());
  }
  const bool unknown = app.get_subcommands().empty() && !app.remaining().empty();
  const std::string text = unknown ? absl::StrCat("'", app.remaining()[0], "' is no subcommand")
                                   : absl::StrReplaceAll(error.what(), {{"TEXT:", ""}});
  return absl::StrCat("error: USAGE: ", text, "; see ", command, " --help");
}

}  // namespace cpshard
