#include "client/cli/demo/layouts.h"

#include "absl/strings/str_cat.h"

namespace cpshard::demo {
namespace {

DemoLayout Make(const std::string& name, const PackOptions& pack) {
  DemoLayout layout;
  layout.name = name;
  layout.options = absl::StrCat("{\"", name, "\":{},\"padding_token_id\":", kPadToken, "}");
  layout.restated.layout = name;
  layout.restated.padding_token_id = kPadToken;
  if (pack.document_multiple) layout.restated.qkv_format = "thd";  // as the batch has it
  layout.pack = pack;
  return layout;
}

}  // namespace

std::vector<DemoLayout> Layouts() {
  // THD pads nothing: its documents and rows come padded to what the ranks can share evenly.
  constexpr int64_t kMultiple = 2 * kCpSize;
  PackOptions thd;
  thd.length = 8192;
  thd.last_length = 8192 + kMultiple;
  thd.document_multiple = kMultiple;
  return {Make("contiguous", {}), Make("round_robin", {}), Make("thd", thd)};
}

}  // namespace cpshard::demo
