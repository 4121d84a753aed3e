#include "server/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

namespace cpshard {
namespace {

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = spdlog::stderr_logger_mt("cpshardd");
    // The message is the JSON body without its opening brace, so that time and level come first.
    made->set_pattern(R"({"ts":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l",%v)",
                      spdlog::pattern_time_type::utc);
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *logger;
}

void Log(spdlog::level::level_enum level, absl::string_view message,
         std::initializer_list<LogField> fields) {
  nlohmann::ordered_json line;
  line["msg"] = std::string(message);
  for (const LogField& field : fields) line[field.first] = field.second;
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  Logger().log(level, "{}", text.substr(1));
}

}  // namespace

void LogInfo(absl::string_view message, std::initializer_list<LogField> fields) {
  Log(spdlog::level::info, message, fields);
}

void LogError(absl::string_view message, std::initializer_list<LogField> fields) {
  Log(spdlog::level::err, message, fields);
}

}  // namespace cpshard
