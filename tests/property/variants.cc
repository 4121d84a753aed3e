#include "tests/property/samples.h"

namespace cpshard::property {
namespace {

using enum Content;
using oracle::Extra;

std::vector<Variant> Primaries() {
  return {
      {"input_ids", "i64", "BS"},
      {"input_ids", "i32", "BS"},
      {"input_ids", "i16", "BS"},
      {"input_ids", "i8", "BS"},
      {"input_ids", "u8", "BS"},
      {"input_ids", "bool", "BS"},
      {"input_ids", "f32", "BS", kBits},
      {"input_ids", "i64", "BS2"},
      {"inputs_embeds", "f32", "BS3", kBits},
      {"inputs_embeds", "f16", "BS2", kBits},
      {"inputs_embeds", "bf16", "BS1", kBits},
      {"inputs_embeds", "f64", "BS2", kBits},
      {"inputs_embeds", "f32", "BS0", kBits},
      {"inputs_embeds", "bf16", "BS", kBits},
  };
}

std::vector<Variant> Labels() {
  return {
      {"labels", "i64", "BS"},  {"labels", "i32", "BS"},        {"labels", "i16", "BS"},
      {"labels", "i8", "BS"},   {"labels", "f32", "BS", kBits}, {"labels", "f16", "BS", kBits},
      {"labels", "bf16", "BS"}, {"labels", "f64", "BS"},        {"labels", "u8", "BS"},
      {"labels", "bool", "BS"}, {"labels", "i64", "BS2"},       {"labels", "", ""},
  };
}

std::vector<Variant> LossMasks() {
  return {
      {"loss_mask", "", ""},       {"loss_mask", "f32", "BS", kBits},
      {"loss_mask", "bool", "BS"}, {"loss_mask", "i64", "BS"},
      {"loss_mask", "u8", "BS"},   {"loss_mask", "bf16", "BS", kBits},
  };
}

std::vector<Variant> Positions() {
  return {
      {"position_ids", "", ""},
      {"position_ids", "i64", "BS", kPositions},
      {"position_ids", "i32", "BS", kPositions},
      {"position_ids", "i64", "1S", kPositions},
      {"position_ids", "i16", "1S", kPositions},
      {"position_ids", "i64", "3BS", kPositions},
      {"position_ids", "i32", "31S", kPositions},
      {"position_ids", "i64", "4BS", kPositions},
      {"position_ids", "i64", "B3S", kPositions},
      {"position_ids", "i64", "BS22", kPositions},
      {"position_ids", "bf16", "BS111", kPositions},
      {"position_ids", "u8", "BS", kPositions},
      {"position_ids", "i8", "3BS", kPositions},
      {"position_ids", "f16", "BS", kPositions},
      {"position_ids", "bf16", "31S", kPositions},
      {"position_ids", "f32", "1S", kPositions},
      {"position_ids", "f64", "BS", kPositions},
  };
}

std::vector<Variant> PaddingMasks() {
  return {
      {"padding_mask", "", ""},        {"padding_mask", "bool", "BS", kMask},
      {"padding_mask", "i64", "BS"},   {"padding_mask", "u8", "BS"},
      {"padding_mask", "i8", "BS"},    {"padding_mask", "f32", "BS", kBits},
      {"padding_mask", "f16", "BS"},   {"padding_mask", "bf16", "BS"},
      {"padding_mask", "bool", "BS2"},
  };
}

std::vector<Variant> AttentionMasks() {
  return {
      {"attention_mask", "", ""},
      {"attention_mask", "i64", "BS", kMask},
      {"attention_mask", "bool", "BS", kMask},
      {"attention_mask", "i32", "BS", kMask},
      {"attention_mask", "u8", "BS", kMask},
      {"attention_mask", "f32", "BS", kMask},
      {"attention_mask", "f16", "BS", kMask},
      {"attention_mask", "bf16", "BS", kMask},
      {"attention_mask", "f64", "BS", kMask},
      {"attention_mask", "i64", "BSS", kMask},
      {"attention_mask", "i16", "BS211", kMask},
      {"attention_mask", "bool", "B1SS", kMask},
      {"attention_mask", "bool", "B2ST", kMask},
      {"attention_mask", "bool", "B1TS", kMask},
      {"attention_mask", "f32", "B1SS", kMask},
      {"attention_mask", "bf16", "B2TS", kMask},
      {"attention_mask", "f16", "B1ST", kMask},
      {"attention_mask", "f64", "B3SS", kMask},
      {"attention_mask", "i64", "B1SS", kMask},
      {"attention_mask", "u8", "B1SS", kMask},
      {"attention_mask", "bool", "B0SS", kMask},
  };
}

Extra Declared(const std::string& name, int64_t axis, std::optional<double> pad = std::nullopt) {
  return Extra{.name = name, .seq_axis = axis, .pad = pad};
}

std::vector<Variant> Extras() {
  return {
      {"route", "", ""},
      {"route", "i64", "BS", kCount, Declared("route", 1)},
      {"route", "f32", "BS4", kBits, Declared("route", 1, -1)},
      {"route", "i64", "B2S", kCount, Declared("route", 2, -1)},
      {"route", "i32", "S3", kCount, Declared("route", 0, -100)},
      {"route", "i64", "S", kCount, Declared("route", -1)},
      {"route", "bf16", "B2S", kBits, Declared("route", -1, 0.5)},
      {"route", "f16", "5BS", kBits, Declared("route", -1, 65504)},
      {"route", "f64", "BS2", kBits, Declared("route", -2, 0.1)},
      {"route", "u8", "BS", kCount, Declared("route", 1, 7)},
      {"route", "u8", "BS", kCount, Declared("route", 1, -1)},
      {"route", "i64", "BS", kCount, Declared("route", 1, -7.9)},
      {"route", "i8", "BS", kCount, Declared("route", 1, 127)},
      {"route", "i8", "BS", kCount, Declared("route", 1, 128)},
      {"route", "bool", "BS", kCount, Declared("route", -1, 1)},
      {"route", "bool", "SB", kCount, Declared("route", 0)},
  };
}

// Names that are ignored (C21), or are streams like any other where the primary stays full.
std::vector<Variant> RepeatedNames() {
  return {
      {"", "", ""},
      {"", "", "", kCount, Declared("labels", 0, -5)},
      {"", "", "", kCount, Declared("padding_mask", 3)},
      {"", "", "", kCount, Declared("attention_mask", 1)},
      {"", "", "", kCount, Declared("loss_mask", 1)},
      {"", "", "", kCount, Declared("input_ids", 1, 3)},
      {"", "", "", kCount, Declared("inputs_embeds", 1)},
      {"", "", "", kCount, Declared("position_ids", -1)},
  };
}

std::vector<Variant> Bystanders() {
  return {
      {"pixel_values", "", ""},    {"pixel_values", "f32", "532", kBits},
      {"image_grid", "i64", "23"}, {"step", "i64", ""},
      {"empty", "f32", "05"},      {"document_lengths", "i64", "B2"},
      {"token_type", "u8", "BS"},
  };
}

}  // namespace

const Variants& StreamVariants() {
  static const auto& variants =
      *new Variants{Primaries(),      Labels(), LossMasks(),     Positions(), PaddingMasks(),
                    AttentionMasks(), Extras(), RepeatedNames(), Bystanders()};
  return variants;
}

}  // namespace cpshard::property
