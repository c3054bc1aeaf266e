#!/usr/bin/env python3
"""Trains SentencePiece models with many settings, and encodes and decodes many texts with the package `sentencepiece`.

    sentencepiece_oracle.py FOLDER [SEED [MODELS]]
    sentencepiece_oracle.py --exported FOLDER

Writes FOLDER/NAME.model, and FOLDER/NAME.cases, which is a JSON list of {"hex", "ids", "decoded"}. "hex" has the bytes of the text,
which is not always UTF-8. A case without "hex" is a sequence of random ids.
With --exported, compares the tokenizer.json files in FOLDER, which were exported from such models, with these cases.
"""
import io
import json
import random
import sys
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto

WORDS = "the miller mends two lamps for a year and sells his old red boat to some other man near water under bridge ships".split()
ALPHABET = ["a", "b", "e", "s", "t", "h", "A", "B", "0", "1", " ", " ", " ", "  ", "\n", "\n\n", "\t", "\r\n", ".", ",", "-", "'", "<", ">", "▁", "▁▁",
            "é", "e\u0301", "ß", "漢", "字", "ガ", "カ\u3099", "ｶﾞ", "ﬁ", "½", "Å", "Ａ", "\u00a0", "\u3000", "\u200b", "\u2028", "\ufeff", "🙂", "👩‍👩‍👧",
            "\x00", "\x01", "\x7f", "\u0085", "the", " the", "miller", "<s>", "</s>", "<unk>", "<0x41>", "<sym>", "<sym>x", "two lamps", "aXb", "XX",
            "XXX", "\u0301", "\u2585", "\ufffd"]
BROKEN = [b"\xff", b"\x80", b"\xe2\x96", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xf0\x9f\x99", b"\xc3"]
SYMBOLS = ["<sym>", "<sym>x", "XX", "XXX", "aXb", "é", "▁▁", "▁two", "two lamps", "\n", "\n\n", "\t", " ", "  "]


def text(draw, length, broken=False):
    parts = []
    for _ in range(length):
        kind = draw.random()
        if broken and kind < 0.1:
            parts.append(draw.choice(BROKEN))
        elif kind < 0.5:
            parts.append((draw.choice(["", " ", " ", " "]) + draw.choice(WORDS)).encode())
        else:
            parts.append(draw.choice(ALPHABET).encode())
    return b"".join(parts)


def corpus(draw):
    for _ in range(400):
        yield " ".join(draw.choice(WORDS) for _ in range(draw.randrange(3, 12))) + draw.choice([".", "", " é", " ß漢字", " 0 1", ", a-b"])


def random_options(draw):
    flag = lambda: draw.random() < 0.5  # noqa: E731
    symbols = [symbol for symbol in SYMBOLS if draw.random() < draw.choice([0, 0.3])]
    options = {
        "model_type": draw.choice(["bpe", "bpe", "bpe", "unigram", "unigram", "char", "word"]),
        "normalization_rule_name": draw.choice(["identity", "identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf"]),
        "add_dummy_prefix": draw.random() < 0.7,
        "remove_extra_whitespaces": flag(),
        "escape_whitespaces": draw.random() < 0.8,
        "treat_whitespace_as_suffix": draw.random() < 0.25,
        "allow_whitespace_only_pieces": flag(),
        "split_by_whitespace": draw.random() < 0.7,
        "split_by_unicode_script": flag(),
        "split_by_number": flag(),
        "split_digits": flag(),
        "user_defined_symbols": symbols,
        "vocab_size": 1000,
        "hard_vocab_limit": False,
        "max_sentencepiece_length": draw.choice([4, 16]),
    }
    if options["model_type"] == "bpe":
        options["vocab_size"] = 256 + 3 + len(symbols) + draw.choice([60, 120, 180])
    return options


def train(options, draw):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=corpus(draw), model_writer=model, byte_fallback=True, num_threads=1,
                                             minloglevel=2, **options)
    return model.getvalue()


def with_unused(model, draw):
    """Returns the model with some pieces marked as unused, as by SetVocabulary."""
    own = proto.ModelProto()
    own.ParseFromString(model)
    for piece in own.pieces:
        if piece.type == own.SentencePiece.NORMAL and len(piece.piece) > 1 and draw.random() < 0.3:
            piece.type = own.SentencePiece.UNUSED
    return own.SerializeToString()


def cases(model, draw, long):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    texts = [b"", b" ", b"  ", b"\n", b"The miller mends two lamps.", b" The miller", "▁".encode(), "▁ ▁x▁".encode(), b"a ", b"x" * 300, b" " * 300]
    texts += [text(draw, draw.randrange(1, 30), draw.random() < 0.2) for _ in range(40)]
    texts += [b" ".join(draw.choice(WORDS).encode() + draw.choice([b"", b"", b"\n", b"XX", b"<sym>", b"  ", "é▁".encode()])
                        for _ in range(200)) for _ in range(3)]
    texts += [text(draw, 3000), b"\n".join(text(draw, 8) for _ in range(400))]
    if long:
        texts.append(b"\n".join([text(draw, 8) for _ in range(30000)][:5000]))  # other draws would give other models after this one
    for raw in texts:
        ids = processor.encode(raw)
        yield {"hex": raw.hex(), "ids": ids, "decoded": processor.decode(ids)}
    for _ in range(30):
        ids = [draw.randrange(processor.get_piece_size()) for _ in range(draw.randrange(1, 12))]
        yield {"ids": ids, "decoded": processor.decode(ids)}


def main(folder, seed=1, models=24):
    made = 0
    draw = random.Random(seed)
    while made < models:
        options = random_options(draw)
        try:
            model = train(options, draw)
        except Exception as error:  # the vocabulary is too large, or the trainer rejects the symbols
            print(f"not trained: {str(error)[:120]}")
            continue
        if draw.random() < 0.15:
            model = with_unused(model, draw)
        name = f"{made:03}-{options['model_type']}-{options['normalization_rule_name']}"
        (folder / f"{name}.model").write_bytes(model)
        (folder / f"{name}.cases").write_text(json.dumps(list(cases(model, draw, made % 8 == 0))), encoding="utf-8")
        (folder / f"{name}.options").write_text(json.dumps(options, ensure_ascii=False))
        made += 1


def exported(folder):
    files = texts = 0
    for file in sorted(folder.glob("*.json")):
        files += 1
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
        transformed = transformers.AutoTokenizer.from_pretrained(file.with_suffix(""))
        symbols = json.loads(file.with_suffix(".options").read_text())["user_defined_symbols"]
        for case in json.loads(file.with_suffix(".cases").read_text()):
            try:
                text = bytes.fromhex(case.get("hex", "ff")).decode()
            except UnicodeDecodeError:
                continue
            # There are known differences for texts with special tokens, and for texts that consist of one symbol.
            if any(name in text for name in ["<s>", "</s>", "<unk>"]) or text in symbols:
                continue
            texts += 1
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            loaded = transformed.encode(text, add_special_tokens=False)
            if loaded != ids:
                sys.exit(f"{file}: transformers loads another tokenizer: {text[:200]!r}\n{loaded[:50]} is not\n{ids[:50]}")
            if ids != case["ids"]:
                sys.exit(f"{file}: {text[:200]!r}\n{ids[:50]} is not\n{case['ids'][:50]}\n{file.with_suffix('.options').read_text()}")
    print(files, texts)


if __name__ == "__main__":
    if sys.argv[1] == "--exported":
        import tokenizers
        import transformers
        exported(Path(sys.argv[2]))
        sys.exit()
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
