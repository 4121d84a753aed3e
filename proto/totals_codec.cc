#include "proto/totals_codec.h"

#include <utility>

#include "absl/status/status.h"

namespace cpshard {
namespace {

void EncodeCounts(const TokenCounts& counts, v1::TokenCounts* message) {
  message->set_real(counts.real);
  message->set_pad(counts.pad);
  if (counts.supervised) message->set_supervised(*counts.supervised);
}

TokenCounts DecodeCounts(const v1::TokenCounts& message) {
  TokenCounts counts{message.real(), message.pad(), {}};
  if (message.has_supervised()) counts.supervised = message.supervised();
  return counts;
}

void EncodeArea(const AreaTotals& area, v1::AttentionArea* message) {
  message->set_imbalance(area.imbalance);
  message->set_useful(area.useful);
  message->set_scheduled(area.scheduled);
}

AreaTotals DecodeArea(const v1::AttentionArea& message) {
  return {message.imbalance(), message.useful(), message.scheduled()};
}

void EncodeBalance(const BalanceTotals& balance, v1::Balance* message) {
  EncodeArea(balance.causal_rows, message->mutable_causal_rows());
  EncodeArea(balance.full_rows, message->mutable_full_rows());
  if (balance.causal_documents) {
    EncodeArea(*balance.causal_documents, message->mutable_causal_documents());
  }
  if (balance.full_documents) {
    EncodeArea(*balance.full_documents, message->mutable_full_documents());
  }
  message->set_slot_imbalance(balance.slot_imbalance);
  message->set_pad_columns(balance.pad_columns);
  message->set_padded_columns(balance.padded_columns);
  message->set_ranks_of_pads(balance.ranks_of_pads);
}

BalanceTotals DecodeBalance(const v1::Balance& message) {
  BalanceTotals balance;
  balance.causal_rows = DecodeArea(message.causal_rows());
  balance.full_rows = DecodeArea(message.full_rows());
  if (message.has_causal_documents()) {
    balance.causal_documents = DecodeArea(message.causal_documents());
  }
  if (message.has_full_documents()) balance.full_documents = DecodeArea(message.full_documents());
  balance.slot_imbalance = message.slot_imbalance();
  balance.pad_columns = message.pad_columns();
  balance.padded_columns = message.padded_columns();
  balance.ranks_of_pads = message.ranks_of_pads();
  return balance;
}

// --- places

void EncodeSource(const SourceToken& source, v1::SourceToken* message) {
  message->set_row(source.row);
  message->set_token(source.token);
}

void EncodePlace(const TokenPlace& place, v1::Place* message) {
  if (place.source) EncodeSource(*place.source, message->mutable_source());
  if (place.padded) {
    message->mutable_padded()->set_chunk(place.padded->chunk);
    message->mutable_padded()->set_row(place.padded->row);
    message->mutable_padded()->set_column(place.padded->column);
  }
  for (const RankSlot& held : place.held) {
    v1::RankSlot* slot = message->add_held();
    slot->set_rank(static_cast<uint32_t>(held.rank));
    slot->set_slot(held.slot);
  }
}

TokenPlace DecodePlace(const v1::Place& message) {
  TokenPlace place;
  if (message.has_source()) place.source = {message.source().row(), message.source().token()};
  if (message.has_padded()) {
    place.padded = {message.padded().chunk(), message.padded().row(), message.padded().column()};
  }
  for (const v1::RankSlot& held : message.held()) place.held.push_back({held.rank(), held.slot()});
  return place;
}

}  // namespace

void EncodeTotals(const BatchTotals& totals, v1::Totals* message) {
  message->set_summed_over(v1::SUMMED_OVER_CP_GROUP);
  if (totals.num_label_tokens) message->set_num_label_tokens(*totals.num_label_tokens);
  if (totals.num_tokens_excl_tail_pad) {
    message->set_num_tokens_excl_tail_pad(*totals.num_tokens_excl_tail_pad);
  }
  EncodeCounts(totals.tokens, message->mutable_tokens());
  message->set_documents(totals.documents);
  message->set_documents_from(totals.documents_from);
  message->set_unsupervised_ranks(totals.unsupervised_ranks);
  if (totals.balance) EncodeBalance(*totals.balance, message->mutable_balance());
}

BatchTotals DecodeTotals(const v1::Totals& message) {
  BatchTotals totals;
  if (message.has_num_label_tokens()) totals.num_label_tokens = message.num_label_tokens();
  if (message.has_num_tokens_excl_tail_pad()) {
    totals.num_tokens_excl_tail_pad = message.num_tokens_excl_tail_pad();
  }
  totals.tokens = DecodeCounts(message.tokens());
  totals.documents = message.documents();
  totals.documents_from = message.documents_from();
  totals.unsupervised_ranks = message.unsupervised_ranks();
  if (message.has_balance()) totals.balance = DecodeBalance(message.balance());
  return totals;
}

void EncodeLoad(const RankLoad& load, v1::RankLoad* message) {
  EncodeCounts(load.tokens, message->mutable_tokens());
  if (load.causal_rows) message->set_causal_rows(*load.causal_rows);
  if (load.full_rows) message->set_full_rows(*load.full_rows);
  if (load.causal_documents) message->set_causal_documents(*load.causal_documents);
  if (load.full_documents) message->set_full_documents(*load.full_documents);
}

RankLoad DecodeLoad(const v1::RankLoad& message) {
  RankLoad load{DecodeCounts(message.tokens()), {}, {}, {}, {}};
  if (message.has_causal_rows()) load.causal_rows = message.causal_rows();
  if (message.has_full_rows()) load.full_rows = message.full_rows();
  if (message.has_causal_documents()) load.causal_documents = message.causal_documents();
  if (message.has_full_documents()) load.full_documents = message.full_documents();
  return load;
}

void EncodeDocument(const DocumentCounts& document, v1::DocumentTotals* message) {
  message->set_chunk(document.chunk);
  message->set_row(document.row);
  message->set_begin(document.span.begin);
  message->set_length(document.span.length);
  message->set_real(document.span.real);
  EncodeCounts(document.tokens, message->mutable_tokens());
}

DocumentCounts DecodeDocument(const v1::DocumentTotals& message) {
  return {message.chunk(),
          message.row(),
          {message.begin(), message.real(), message.length()},
          DecodeCounts(message.tokens())};
}

void EncodePadCosts(const PadCosts& costs, v1::PadCosts* message) {
  message->set_document_multiple(costs.rule.document_multiple);
  message->set_document_term(costs.rule.document_term);
  message->set_row_multiple(costs.rule.row_multiple);
  message->set_row_term(costs.rule.row_term);
  message->set_row_minimum(costs.rule.row_minimum);
  message->mutable_padded()->Add(costs.padded.begin(), costs.padded.end());
  message->set_row(costs.row);
}

PadCosts DecodePadCosts(const v1::PadCosts& message) {
  PadCosts costs;
  costs.rule = {message.document_multiple(), message.document_term(), message.row_multiple(),
                message.row_term(),          message.row_minimum(),   {}};
  costs.padded.assign(message.padded().begin(), message.padded().end());
  costs.row = message.row();
  return costs;
}

void EncodeQuery(const PlaceQuery& query, v1::PlaceQuery* message) {
  if (const auto* token = std::get_if<SourceToken>(&query)) {
    EncodeSource(*token, message->mutable_token());
    return;
  }
  const SlotQuery& slot = std::get<SlotQuery>(query);
  message->mutable_slot()->set_rank(slot.slot.rank);
  message->mutable_slot()->set_slot(slot.slot.slot);
  message->mutable_slot()->set_row(slot.row);
}

absl::StatusOr<PlaceQuery> DecodeQuery(const v1::PlaceQuery& message) {
  if (message.has_token()) return SourceToken{message.token().row(), message.token().token()};
  if (message.has_slot()) {
    return SlotQuery{{message.slot().rank(), message.slot().slot()}, message.slot().row()};
  }
  return absl::InvalidArgumentError("a query asks for neither a token nor a slot");
}

void EncodePlaceAnswer(const Explanation& explanation, v1::PlaceAnswer* message) {
  EncodePlace(explanation.place, message->mutable_place());
  if (explanation.document) {
    v1::DocumentPlace* document = message->mutable_document();
    document->set_index(explanation.document->index);
    document->set_begin(explanation.document->span.begin);
    document->set_real(explanation.document->span.real);
    document->set_length(explanation.document->span.length);
    document->set_position(explanation.document->position);
  }
  if (explanation.previous) EncodePlace(*explanation.previous, message->mutable_previous());
  if (explanation.next) EncodePlace(*explanation.next, message->mutable_next());
}

Explanation DecodePlaceAnswer(const v1::PlaceAnswer& message) {
  Explanation explanation;
  explanation.place = DecodePlace(message.place());
  if (message.has_document()) {
    const v1::DocumentPlace& document = message.document();
    explanation.document = {document.index(),
                            {document.begin(), document.real(), document.length()},
                            document.position()};
  }
  if (message.has_previous()) explanation.previous = DecodePlace(message.previous());
  if (message.has_next()) explanation.next = DecodePlace(message.next());
  return explanation;
}

}  // namespace cpshard
