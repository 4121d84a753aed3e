#include "client/cli/demo/layouts.h"

#include "absl/strings/str_cat.h"
#include "client/cli/demo/pack.h"

namespace cpshard::demo {

std::vector<DemoLayout> Layouts() {
  std::vector<DemoLayout> layouts;
  for (const char* name : {"contiguous", "round_robin"}) {
    oracle::Options restated;
    restated.layout = name;
    restated.padding_token_id = kPadToken;
    layouts.push_back(
        {name, absl::StrCat("{\"", name, "\":{},\"padding_token_id\":", kPadToken, "}"), restated});
  }
  return layouts;
}

}  // namespace cpshard::demo
