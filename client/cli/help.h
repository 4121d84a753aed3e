// What `cpshard --help` and `cpshard COMMAND --help` look like, and how a usage error reads.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace cpshard {

// No line of a help is longer.
inline constexpr int kHelpColumns = 80;

// For the program and every subcommand that is added to it later: a usage line with what is
// required, options in groups, and with each in brackets what else holds for it.
void SetHelpFormat(CLI::App& app);

// What stands below the options: what to know, examples, where to read on; and the groups that
// commands and options stand in. Precondition: all subcommands have been added.
void AddHelpPages(CLI::App& app);

// The error as one line, with the command whose --help says more.
std::string UsageErrorLine(const CLI::App& app, const CLI::ParseError& error);

}  // namespace cpshard
