#include "server/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "proto/options.h"

namespace cpshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ConfigTest : public ::testing::Test {
 protected:
  ~ConfigTest() override {
    unsetenv("CPSHARD_WORKERS");
    unsetenv("CPSHARD_LISTEN");
    unsetenv("CPSHARD_CONFIG");
  }

  static absl::StatusOr<CommandLine> Parse(std::vector<std::string> arguments) {
    std::vector<const char*> argv = {"cpshardd"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    return ParseCommandLine(static_cast<int>(argv.size()), argv.data());
  }

  static std::string File(const std::string& text) {
    static int number = 0;
    const std::string path = absl::StrCat(::testing::TempDir(), "/config", ++number, ".json");
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(ConfigTest, TheLaterSourceWins) {
  const std::string file = File(R"({"workers": 3, "queue": 7, "listen": ["127.0.0.1:1"]})");
  auto line = Parse({"--config", file});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.workers, 3);
  EXPECT_EQ(line->options.queue, 7);
  setenv("CPSHARD_WORKERS", "4", 1);
  setenv("CPSHARD_LISTEN", "127.0.0.1:2,unix:/tmp/x", 1);
  line = Parse({"--config", file});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.workers, 4);
  EXPECT_THAT(line->options.listen, ElementsAre("127.0.0.1:2", "unix:/tmp/x"));
  line = Parse({"--config", file, "--workers", "5"});
  EXPECT_EQ(line->options.workers, 5);
  EXPECT_EQ(line->options.queue, 7);
}

TEST_F(ConfigTest, SessionsHaveTheirSettings) {
  const auto line =
      Parse({"--config", File(R"({"session_bytes": 4096, "replay_steps": 3, "max_groups": 2})"),
             "--ahead-steps=5", "--rank-timeout-seconds=7"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.session_bytes, 4096);
  EXPECT_EQ(line->options.session_limits.replay_steps, 3);
  EXPECT_EQ(line->options.session_limits.max_groups, 2);
  EXPECT_EQ(line->options.session_limits.ahead_steps, 5);
  EXPECT_EQ(line->options.session_limits.rank_timeout_seconds, 7);
  EXPECT_EQ(Parse({})->options.session_bytes, std::nullopt);
}

// A group of the file, with a part of it said otherwise.
std::string GroupFile(const std::string& instead_of = "", const std::string& text = "") {
  std::string file = R"({"session_bytes": 1073741824, "groups": [{"group": "dp0", "cp_size": 4,
      "options": {"round_robin": {}, "padding_token_id": 7}, "streams": [
      {"name": "train", "max_step_bytes": 1048576, "num_loaders": 8},
      {"name": "val", "max_step_bytes": 65536, "num_loaders": 1}]}]})";
  if (!instead_of.empty()) file.replace(file.find(instead_of), instead_of.size(), text);
  return file;
}

TEST_F(ConfigTest, GroupsAreDeclaredInTheFile) {
  const auto line = Parse({"--config", File(GroupFile())});
  ASSERT_TRUE(line.ok()) << line.status();
  ASSERT_EQ(line->options.groups.size(), 1u);
  const DeclaredGroup& group = line->options.groups[0];
  EXPECT_EQ(group.group, "dp0");
  EXPECT_EQ(group.cp_size, 4);
  EXPECT_EQ(group.options,
            Options::FromJson(R"({"padding_token_id": 7, "round_robin": {}})")->ToBytes());
  EXPECT_EQ(group.fingerprint, "");
  ASSERT_EQ(group.streams.size(), 2u);
  EXPECT_EQ(group.streams[0].name, "train");
  EXPECT_EQ(group.streams[0].max_step_bytes, 1048576);
  EXPECT_EQ(group.streams[0].num_loaders, 8);
}

TEST_F(ConfigTest, AGroupThatNobodyCouldOpenIsRefused) {
  struct Case {
    std::string instead_of, text, says;
  };
  for (const Case& one : {
           Case{R"("cp_size": 4)", R"("cp_size": 0)", "cp_size"},
           Case{R"("cp_size": 4)", R"("cp_size": 5000)", "max_ranks"},
           Case{R"("round_robin": {}, )", "", "no layout"},
           Case{R"("num_loaders": 8)", R"("num_loaders": 0)", "num_loaders"},
           Case{R"("num_loaders": 8)", R"("num_loaders": 300)", "at most 256"},
           Case{R"("max_step_bytes": 65536, )", "", "max_step_bytes"},
           Case{R"("name": "val")", R"("name": "train")", "named twice"},
           Case{R"("group": "dp0")", R"("group": "")", "group"},
           Case{R"("num_loaders": 8)", R"("loaders": 8)", "loaders"},
           Case{"1073741824", "4194304", "session_bytes 4194304"},
       }) {
    const absl::Status status =
        Parse({"--config", File(GroupFile(one.instead_of, one.text))}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.says));
  }
}

TEST_F(ConfigTest, SettingsOfSessionsOutOfRangeAreRefused) {
  for (const char* flag : {"--replay-steps=0", "--ahead-steps=1", "--rank-timeout-seconds=0",
                           "--max-groups=0", "--session-bytes=-1"}) {
    EXPECT_EQ(Parse({flag}).status().code(), absl::StatusCode::kInvalidArgument) << flag;
  }
  const auto over = Parse({"--pool-bytes=2097152", "--session-bytes=2097153"});
  EXPECT_EQ(over.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(over.status().message()),
              testing::AllOf(HasSubstr("session_bytes"), HasSubstr("2097152")));
}

TEST_F(ConfigTest, TheExecutorHasItsSettings) {
  const auto line = Parse({"--config", File(R"({"executor": "cuda", "cuda_device": 3,
                                               "pinned_bytes": 0})"),
                           "--cuda-memory-bytes=2097152"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.place.executor, ExecutorKind::kCuda);
  EXPECT_EQ(line->options.place.cuda_device, 3);
  EXPECT_EQ(line->options.place.cuda_memory_bytes, 2097152);
  EXPECT_EQ(line->options.place.pinned_bytes, 0);
  EXPECT_EQ(Parse({})->options.place.executor, ExecutorKind::kAuto);
  EXPECT_EQ(Parse({"--executor=cpu"})->options.place.executor, ExecutorKind::kCpu);
}

TEST_F(ConfigTest, SettingsOfTheExecutorOutOfRangeAreRefused) {
  for (const char* flag :
       {"--executor=gpu", "--executor=", "--executor=CPU", "--cuda-device=-1", "--cuda-device=1024",
        "--cuda-device=4294967296", "--cuda-memory-bytes=1048575", "--pinned-bytes=-1"}) {
    EXPECT_EQ(Parse({flag}).status().code(), absl::StatusCode::kInvalidArgument) << flag;
  }
  const std::string file = File(R"({"executor": "gpu"})");
  EXPECT_THAT(std::string(Parse({"--config", file}).status().message()),
              HasSubstr(file + "': executor 'gpu' is none of auto, cpu and cuda"));
  setenv("CPSHARD_EXECUTOR", "gpu", 1);
  const std::string variable(Parse({}).status().message());
  unsetenv("CPSHARD_EXECUTOR");
  EXPECT_THAT(variable, HasSubstr("CPSHARD_EXECUTOR: executor 'gpu'"));
}

TEST_F(ConfigTest, WhatCouldNeverStartWithItsExecutorIsRefused) {
  const auto why = [](std::vector<std::string> arguments) {
    return std::string(Parse(std::move(arguments)).status().message());
  };
  const std::string cuda_group = File(GroupFile(R"("cp_size": 4,)", R"("cp_size": 4,
      "executor": "cuda",)"));
  EXPECT_THAT(why({"--config", cuda_group, "--executor=cpu"}),
              AllOf(HasSubstr("executor is cpu"), HasSubstr("group 'dp0'")));
  EXPECT_EQ(why({"--config", cuda_group, "--executor=cuda"}), "");
  EXPECT_EQ(why({"--config", cuda_group}), "");  // there may be a device
  // All Runs at a time share the memory; of all sources together.
  const std::string one = File(R"({"cuda_memory_bytes": 1048576})");
  for (const char* executor : {"--executor=auto", "--executor=cuda"}) {
    EXPECT_THAT(why({"--config", one, executor, "--workers=3"}),
                AllOf(HasSubstr("cuda_memory_bytes is 1048576"), HasSubstr("3145728"),
                      HasSubstr("workers is 3")));
    EXPECT_THAT(why({"--cuda-memory-bytes=4194303", executor, "--workers=64"}),
                HasSubstr("4194304"));
    EXPECT_EQ(why({"--cuda-memory-bytes=4194304", executor, "--workers=64"}), "");
    EXPECT_EQ(why({"--config", one, executor, "--workers=1"}), "");
  }
  EXPECT_EQ(why({"--config", one, "--executor=cpu"}), "");
}

TEST_F(ConfigTest, AVariableThatIsEmptyIsNone) {
  setenv("CPSHARD_EXECUTOR", "", 1);
  const auto line = Parse({"--config", File(R"({"executor": "cpu"})")});
  unsetenv("CPSHARD_EXECUTOR");
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.place.executor, ExecutorKind::kCpu);
}

TEST_F(ConfigTest, AListOfAddressesMayBeRepeatedFlags) {
  const auto line = Parse({"--listen", "127.0.0.1:0", "--listen", "unix:/tmp/a.sock"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->options.listen, ElementsAre("127.0.0.1:0", "unix:/tmp/a.sock"));
}

TEST_F(ConfigTest, WhatIsWrongIsNamed) {
  struct Case {
    std::vector<std::string> arguments;
    const char* named;
  };
  const Case cases[] = {
      {{"--config", File(R"({"wrokers": 3})")}, "wrokers"},
      {{"--workers", "0"}, "workers is 0"},
      {{"--workers", "many"}, "many"},
      {{"--socket-mode", "0999"}, "0999"},
      {{"--max-batch-bytes", "-1"}, "max_batch_bytes is -1"},
      {{"--no-such-flag"}, "no-such-flag"},
      {{"--listen", "127.0.0.1:99999"}, "99999"},
      {{"--listen", "127.0.0.1"}, "127.0.0.1"},
      {{"--listen", "127.0.0.1:"}, "port ''"},
      {{"--listen", "::1:7070"}, "::1"},
      {{"--listen", "unix-abstract:abc"}, "unix-abstract"},
      {{"--listen", "unix:"}, "0 bytes"},
      {{"--listen", "unix://"}, "0 bytes"},
      {{"--listen", "unix:/" + std::string(120, 'x')}, "121 bytes"},
      {{"--listen", "unix:/a,unix:/a"}, "twice"},
      {{"--config", File(R"({"listen": []})")}, "no address"},
      {{"--socket-mode", ""}, "octal"},
      {{"--listen", "127.0.0.1:0", "stray"}, "stray"},
  };
  for (const Case& c : cases) {
    const auto line = Parse(c.arguments);
    EXPECT_EQ(line.status().code(), absl::StatusCode::kInvalidArgument) << c.named;
    EXPECT_THAT(std::string(line.status().message()), HasSubstr(c.named));
  }
  EXPECT_EQ(Parse({"--config", "/no/such/file"}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ConfigTest, AFaultIsOneLineThatNamesItsSource) {
  for (const char* text : {"not json", "", R"({"workers": 2)", R"({"workers": 2} {})"}) {
    const std::string file = File(text);
    const std::string message(Parse({"--config", file}).status().message());
    EXPECT_THAT(message, HasSubstr(file));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  EXPECT_EQ(Parse({"--config", ::testing::TempDir()}).status().code(), absl::StatusCode::kNotFound);
  setenv("CPSHARD_WORKERS", "many", 1);
  EXPECT_THAT(std::string(Parse({}).status().message()), HasSubstr("CPSHARD_WORKERS"));
  setenv("CPSHARD_WORKERS", "0", 1);
  EXPECT_THAT(std::string(Parse({}).status().message()),
              HasSubstr("CPSHARD_WORKERS: workers is 0"));
  const std::string flag(Parse({"--workers", "many"}).status().message());
  EXPECT_EQ(flag.find("CPSHARD_WORKERS"), std::string::npos) << flag;
  unsetenv("CPSHARD_WORKERS");
  const std::string file = File(R"({"workers": 0})");
  EXPECT_THAT(std::string(Parse({"--config", file}).status().message()),
              HasSubstr(file + "': workers is 0"));
}

TEST_F(ConfigTest, TheSocketModeIsOctal) {
  EXPECT_EQ(Parse({"--socket-mode", "0600"})->options.socket_mode, 0600);
}

TEST_F(ConfigTest, KnowsWhatIsOnlyToBePrintedOrChecked) {
  EXPECT_EQ(Parse({"--check-config"})->action, Action::kCheckOnly);
  EXPECT_EQ(Parse({"--version"})->action, Action::kPrintVersion);
  EXPECT_EQ(Parse({"--help"})->action, Action::kPrintHelp);
}

}  // namespace
}  // namespace cpshard
