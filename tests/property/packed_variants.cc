#include "tests/property/samples.h"

namespace cpshard::property {
namespace {

using enum Content;

std::vector<Variant> Ids() {
  return {
      {"input_ids", "i64", "BS"},
      {"input_ids", "i32", "BS"},
      {"input_ids", "i16", "BS"},
      {"input_ids", "i8", "BS"},
      {"input_ids", "u8", "BS"},
      {"input_ids", "bool", "BS"},
      {"input_ids", "i64", "BS1"},
      {"input_ids", "i32", "BS2"},
      {"input_ids", "f32", "BS", kBits},
      {"input_ids", "f32", "BS3", kBits},
      {"input_ids", "bf16", "BS1", kBits},
      {"input_ids", "f16", "BS2", kBits},
      {"input_ids", "f64", "BS111", kBits},
      {"input_ids", "bf16", "BS22", kBits},
      {"input_ids", "f32", "BS0", kBits},
  };
}

std::vector<Variant> Labels() {
  return {
      {"labels", "i64", "BS"},  {"labels", "i32", "BS"},         {"labels", "i16", "BS"},
      {"labels", "i8", "BS"},   {"labels", "u8", "BS"},          {"labels", "bool", "BS"},
      {"labels", "f32", "BS"},  {"labels", "f16", "BS"},         {"labels", "bf16", "BS"},
      {"labels", "f64", "BS1"}, {"labels", "i64", "BS2"},        {"labels", "i32", "BS21"},
      {"labels", "", ""},       {"labels", "f32", "BS2", kBits},
  };
}

std::vector<Variant> Positions() {
  return {
      {"position_ids", "i64", "BS", kPositions},
      {"position_ids", "i32", "BS", kPositions},
      {"position_ids", "i16", "BS", kPositions},
      {"position_ids", "u8", "BS", kPositions},
      {"position_ids", "f32", "BS", kPositions},
      {"position_ids", "f16", "BS", kPositions},
      {"position_ids", "bf16", "BS", kPositions},
      {"position_ids", "i64", "3BS", kPositions},
      {"position_ids", "i32", "4BS", kPositions},
      {"position_ids", "i64", "1S", kPositions},
      {"position_ids", "i64", "31S", kPositions},
      {"position_ids", "i64", "B3S", kPositions},
      {"position_ids", "bool", "BS"},
      {"position_ids", "i64", "BS1", kPositions},
      {"position_ids", "i64", "1BS", kPositions},
      {"position_ids", "f64", "0BS", kPositions},
      {"position_ids", "", ""},
  };
}

// Rebuilt, whatever it was.
std::vector<Variant> PaddingMasks() {
  return {
      {"padding_mask", "", ""},
      {"padding_mask", "bool", "BS", kMask},
      {"padding_mask", "i64", "BS"},
      {"padding_mask", "f32", "ST2", kBits},
  };
}

std::vector<Variant> AttentionMasks() {
  return {
      {"attention_mask", "", ""},
      {"attention_mask", "i64", "BS", kMask},
      {"attention_mask", "bool", "B1SS", kMask},
      {"attention_mask", "f32", "2T", kMask},
  };
}

// What an earlier conversion left behind.
std::vector<Variant> Leftovers() {
  return {
      {"", "", ""},
      {"cu_seqlens_padded", "i64", "3"},
      {"cu_seqlens_padded", "i32", "B4"},
      {"cu_seqlens", "i32", "4"},
      {"cu_seqlens", "f32", "B2"},
      {"max_seqlen", "i64", "1"},
      {"max_seqlen", "i32", ""},
      {"_thd_local_indices", "i64", "S"},
  };
}

std::vector<Variant> Bystanders() {
  return {
      {"pixel_values", "", ""},    {"pixel_values", "f32", "532", kBits},
      {"image_grid", "i64", "23"}, {"step", "i64", ""},
      {"empty", "f32", "05"},      {"inputs_embeds", "bf16", "BS2", kBits},
      {"token_type", "u8", "BS"},
  };
}

}  // namespace

const Variants& PackedStreamVariants() {
  static const auto& variants = *new Variants{
      Ids(), Labels(), Positions(), PaddingMasks(), AttentionMasks(), Leftovers(), Bystanders()};
  return variants;
}

}  // namespace cpshard::property
