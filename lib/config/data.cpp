#include "config/data.h"

#include "config/keys.h"
#include "io/data/tokens/source_list.h"

namespace lyceum {

void declare_keys(ConfigKeys& keys, DataConfig& data) {
  using enum KeyRole;
  const KeySection key(keys, identity);
  key("data.train", &data.train, {.longest = most_source_list_bytes},
      "training tokens: prefix of .bin and .idx files, a mixture: WEIGHT PREFIX WEIGHT PREFIX …, or @FILE with one "
      "WEIGHT PREFIX or PREFIX a line",
      {.other_names = {"data_path", "train_data_path", "train_file"}});
  key("data.valid", &data.valid, {.longest = most_source_list_bytes},
      "validation tokens: one prefix or several, or @FILE with one a line",
      {.role = reported, .other_names = {"valid_data_path", "validation_file"}});
  key("data.tokenizer", &data.tokenizer, {}, "SentencePiece .model or tokenizer.json that encoded the tokens",
      {.role = operation, .other_names = {"tokenizer_model", "tokenizer_path"}});
  key("data.chat", &data.chat, {.names = {"auto", "chatml", "llama3", "deepseek", "plain"}},
      "chat template, for generate; auto: the one that data.train was encoded with, if any", {.role = operation});
  key("data.end_tokens", &data.end_tokens, {.low = 0},
      "token ids that end a generated text, in addition to the end of an answer and the end-of-text token",
      {.role = operation});
  key("data.order", &data.order, "order of the training samples");
  key("data.samples", &data.samples,
      "stream: cut from the stream of all documents; packed: whole documents, with padding that is not trained");
  key("data.document_mask", &data.document_mask, {},
      "tokens attend only to their own document, in which positions count from 0");
  key("data.valid_fraction", &data.valid_fraction, {.low = 0, .high = 1, .high_open = true},
      "without data.valid: share of data.train to hold out, from its end");
  key("data.changed", &data.changed,
      "on resume: what to do if the token files differ from those that the checkpoint's run read", {.role = operation});
}

void declare_keys(ConfigKeys& keys, BatchConfig& batch) {
  using enum KeyRole;
  const KeySection key(keys, identity);
  key("batch.global", &batch.global, {.low = 1}, "sequences per step, over all ranks",
      {.role = tuning, .other_names = {"batch_size", "global_batch_size", "train_batch_size"}});
  key("batch.micro", &batch.micro, {.low = 0}, "sequences that a rank processes at once; 0: global / data ranks",
      {.role = operation,
       .other_names = {"micro_batch_size", "train_micro_batch_size_per_gpu", "per_device_train_batch_size"}});
  key("batch.seq_len", &batch.seq_len, {.low = 1}, "tokens per sequence",
      {.other_names = {"seq_length", "sequence_length", "max_seq_len", "max_position_embeddings", "context_length",
                       "block_size"}});
}

void simplify_data(DataConfig& data) {
  if (!data.valid.empty()) data.valid_fraction = 0;
}

}  // namespace lyceum
