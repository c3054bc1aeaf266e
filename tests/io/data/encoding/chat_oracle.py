#!/usr/bin/env python3
"""Renders chats with Jinja as transformers does, and encodes them as a whole with `tokenizers` and `sentencepiece`.

    chat_oracle.py FOLDER

FOLDER/templates.json has Lyceum's own Jinja templates by name. They must render the same texts as the templates that were
published with the models. Writes FOLDER/NAME.json or FOLDER/NAME.model, and FOLDER/NAME.cases: a JSON list with {"chat",
"record", "ids", "trained", "prompt"} for each template and chat. "prompt" has the ids of the chat without its last answer.
"""
import functools
import json
import random
import sys
from pathlib import Path

import sentencepiece
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import normalizers, pre_tokenizers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tokenizer" / "json"))
import tokenizer_oracle as oracle  # noqa: E402

# The published templates: Qwen's, Meta's (Llama 3 8B Instruct), DeepSeek's (LLM and MoE 16B chat).
PUBLISHED = {
    "chatml": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
              "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "llama3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
              "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
              "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
              "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "deepseek": "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ bos_token }}"
                "{% for message in messages %}{% if message['role'] == 'user' %}{{ 'User: ' + message['content'] + '\n\n' }}"
                "{% elif message['role'] == 'assistant' %}{{ 'Assistant: ' + message['content'] + eos_token }}"
                "{% elif message['role'] == 'system' %}{{ message['content'] + '\n\n' }}{% endif %}{% endfor %}"
                "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}",
}
BEGIN = {"chatml": "", "llama3": "<|begin_of_text|>", "deepseek": "<｜begin▁of▁sentence｜>"}
TOKENS = ["<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
          "<｜begin▁of▁sentence｜>"]
TEXTS = ["The miller mends two lamps.", " leading and trailing ", "\n\nlines\n\n", "  two\tblanks  ", "Größe, naïve é 漢字 🙂",
         "1234567 + 89 = 1234656", "\u0301 begins with a mark", "x", "\u2028odd\u00a0blanks\u3000", "def f(x):\n    return x\n"]


@functools.cache
def compiled(template):
    return ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(template)


def render(template, messages, eos, begin, prompt=False):
    return compiled(template).render(messages=messages, add_generation_prompt=prompt, bos_token=begin, eos_token=eos)


def chats():
    draw = random.Random(3)
    for _ in range(60):
        messages = [{"role": "system", "content": draw.choice(TEXTS)}] if draw.random() < 0.5 else []
        for _ in range(draw.randrange(1, 4)):
            messages += [{"role": role, "content": draw.choice(TEXTS)} for role in ("user", "assistant")]
        if draw.random() < 0.3 and len(messages) > 3:
            messages[-3]["weight"] = 0 if messages[-3]["role"] == "assistant" else None
        yield messages


def spans(render_of, messages):
    """Yields the trained ranges of the text: from the end of the assistant's header to the end of the token that ends the answer."""
    for i, message in enumerate(messages):
        if message["role"] == "assistant" and message.get("weight") != 0:
            begin, end = len(render_of(messages[:i], True)), len(render_of(messages[:i + 1], False))
            yield begin, end - (1 if render_of(messages[:i + 1], False).endswith("<|im_end|>\n") else 0)


def overlap(offsets, marked):
    # An empty range counts as the character that follows it.
    return [int(any(begin < b and max(end, begin + 1) > a for a, b in marked)) for begin, end in offsets]


def cases(names, templates, eos, encode, end):
    for name in names:
        def render_of(messages, prompt, name=name):
            text = render(PUBLISHED[name], messages, eos, BEGIN[name], prompt) if messages else BEGIN[name] + (
                render(PUBLISHED[name], messages, eos, "", prompt))
            own = render(templates[name], messages, eos, None, prompt)
            assert text == own, (name, text, own)
            return text

        for messages in chats():
            text = render_of(messages, False)
            ids, offsets = encode(text)
            trained = overlap(offsets, list(spans(render_of, messages)))
            if ids[-1] != end:
                ids, trained = ids + [end], trained + [0]
            yield {"chat": name, "record": json.dumps({"messages": messages}), "ids": ids, "trained": trained,
                   "prompt": encode(render_of(messages[:-1], True))[0]}


def hugging_face(folder, templates):
    byte_level, split, sequence, bytes_only = oracle.byte_level, oracle.split, oracle.sequence, oracle.bytes_only
    made = {
        "gpt2": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "llama3": byte_level(sequence(split(oracle.LLAMA3), bytes_only()), ignore_merges=True),
        "qwen2": byte_level(sequence(split(oracle.QWEN2), bytes_only()), normalizers.NFC()),
        "deepseek": byte_level(sequence(*map(split, oracle.DEEPSEEK), pre_tokenizers.Digits(True), bytes_only())),
        "lower": byte_level(sequence(split(oracle.LLAMA3), bytes_only()), normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])),
        "mistral": oracle.sentencepiece_bpe(),
        "mistral_unknown": oracle.sentencepiece_bpe(byte_fallback=False),
        "metaspace": oracle.unigram(pre_tokenizers.Metaspace("▁", "first", True), oracle.decoders.Metaspace("▁", "first"), True),
    }
    for name, tokenizer in made.items():
        eos = "<|endoftext|>" if tokenizer.token_to_id("<|endoftext|>") is not None else "</s>"
        tokenizer.add_special_tokens(TOKENS)
        tokenizer.save(str(folder / f"{name}.json"))

        def encode(text, tokenizer=tokenizer):
            encoded = tokenizer.encode(text, add_special_tokens=False)
            return encoded.ids, encoded.offsets

        yield name, list(cases(PUBLISHED, templates, eos, encode, tokenizer.token_to_id(eos)))


def sentencepiece_models(folder, templates):
    """Trains models with the settings of `lyceum tokenize`, Llama 2 and T5. Yields their names and cases."""
    (folder / "corpus.txt").write_text("\n".join(line for text in oracle.corpus() for line in text.splitlines()), encoding="utf-8")
    lossless = {"add_dummy_prefix": False, "remove_extra_whitespaces": False, "normalization_rule_name": "identity"}
    for name, kind, settings in [("sp_bpe", "bpe", lossless), ("sp_unigram", "unigram", lossless),
                                 ("sp_prefix", "bpe", lossless | {"add_dummy_prefix": True}),
                                 ("sp_nfkc", "unigram", {"normalization_rule_name": "nfkc", "remove_extra_whitespaces": False})]:
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "corpus.txt"), model_prefix=str(folder / name), model_type=kind, vocab_size=700, byte_fallback=True,
            user_defined_symbols=[token for token in TOKENS if "▁" not in token], minloglevel=2, hard_vocab_limit=False, **settings)
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.model"))

        def encode(text, model=model):
            pieces = model.encode(text, return_type="proto").pieces
            places = {len(text[:i].encode()): i for i in range(len(text) + 1)}  # the character at each byte offset
            return [piece.id for piece in pieces], [(places[piece.begin], places[piece.end]) for piece in pieces]

        yield name, list(cases(["chatml", "llama3"], templates, "", encode, model.eos_id()))


def main(folder):
    templates = json.loads((folder / "templates.json").read_text(encoding="utf-8"))
    for name, made in [*hugging_face(folder, templates), *sentencepiece_models(folder, templates)]:
        (folder / f"{name}.cases").write_text(json.dumps(made), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
