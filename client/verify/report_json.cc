#include <nlohmann/json.hpp>

#include "client/verify/report.h"

namespace cpshard::verify {
namespace {

using Json = nlohmann::ordered_json;

Json JsonOf(const TensorSpec& spec) {
  return {{"name", spec.name}, {"dtype", std::string(DTypeName(spec.dtype))}, {"shape", spec.dims}};
}

Json JsonOf(const Explanation& place) {
  Json json = Json::object();
  if (place.place.source) {
    json["row"] = place.place.source->row;
    json["token"] = place.place.source->token;
  }
  if (place.place.padded) {
    json["chunk"] = place.place.padded->chunk;
    json["padded_row"] = place.place.padded->row;
    json["padded_column"] = place.place.padded->column;
  }
  if (place.document) {
    json["document"] = place.document->index;
    json["position"] = place.document->position;
    json["document_padding"] = place.document->is_padding();
  }
  Json held = Json::array();
  for (const RankSlot& slot : place.place.held) {
    held.push_back({{"rank", slot.rank}, {"slot", slot.slot}});
  }
  json["held"] = std::move(held);
  return json;
}

Json JsonOf(const FirstDifference& first) {
  Json json = {{"rank", first.rank}, {"index", first.index}};
  if (first.place) json["place"] = JsonOf(*first.place);
  json["expected"] = first.expected;
  json["found"] = first.found;
  if (!first.meaning.empty()) json["meaning"] = first.meaning;
  return json;
}

Json JsonOf(const StreamFinding& stream) {
  Json json = JsonOf(stream.ours);
  json["extent"] = std::string(ExtentName(stream.extent));
  json["verdict"] = std::string(VerdictName(stream.verdict));
  if (!stream.absent.empty()) json["absent_in_ranks"] = stream.absent;
  if (stream.theirs) json["theirs"] = JsonOf(*stream.theirs);
  if (stream.cause) json["cause"] = {{"code", stream.cause->code}, {"text", stream.cause->text}};
  Json counts = Json::array();
  for (const RankCount& count : stream.differing) {
    counts.push_back(
        {{"rank", count.rank}, {"differing", count.differing}, {"elements", count.elements}});
  }
  if (!counts.empty()) json["differing"] = std::move(counts);
  if (stream.first) json["first"] = JsonOf(*stream.first);
  return json;
}

Json JsonOf(const EdgeCount& count) { return {{"checked", count.checked}, {"wrong", count.wrong}}; }

Json JsonOf(const EdgeProbe& edges) {
  if (!edges.not_probed.empty()) return {{"not_probed", edges.not_probed}};
  Json json = {{"labels", edges.rule == Labels::Rule::kNext ? "next_id" : "own_id"},
               {"agreeing", edges.agreeing},
               {"supervised", edges.supervised},
               {"shard_edges", JsonOf(edges.shard_edges)},
               {"document_ends", JsonOf(edges.document_ends)},
               {"wrong_as_in_batch", edges.wrong_as_in_batch}};
  if (!edges.first) return json;
  const WrongEdge& first = *edges.first;
  json["first"] = {{"rank", first.rank},
                   {"index", first.index},
                   {"place", JsonOf(first.place)},
                   {"expected", first.expected},
                   {"why", first.why},
                   {"found", first.found},
                   {"meaning", first.meaning},
                   {"as_in_batch", first.as_in_batch}};
  return json;
}

template <typename T>
Json ListOf(const std::vector<T>& items) {
  Json list = Json::array();
  for (const T& item : items) list.push_back(JsonOf(item));
  return list;
}

}  // namespace

std::string ToJson(const Findings& findings) {
  const Json json = {{"verdict", findings.different() ? "DIFFERENT" : "EQUAL"},
                     {"cp_size", findings.cp_size},
                     {"ranks", findings.ranks},
                     {"surplus_ranks", findings.surplus},
                     {"documents_from", findings.documents_from},
                     {"streams", ListOf(findings.streams)},
                     {"edges", JsonOf(findings.edges)},
                     {"extra_streams", ListOf(findings.extra)},
                     {"scalars_not_compared", findings.scalars}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cpshard::verify
