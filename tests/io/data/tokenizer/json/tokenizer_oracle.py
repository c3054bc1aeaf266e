#!/usr/bin/env python3
"""Creates tokenizer.json files with the package `tokenizers`, and encodes and decodes many texts with them.

    tokenizer_oracle.py FOLDER
    tokenizer_oracle.py --classes FILE
    tokenizer_oracle.py --characters FILE

Writes FOLDER/NAME.json, and FOLDER/NAME.cases, which is a JSON list of {"text", "ids", "decoded"}. A text that is not UTF-8
also has its bytes in "hex"; its "text" is decoded with errors="replace". A case without "text" is a sequence of random ids.
With --classes or --characters, writes the result of classes() or characters() to FILE.
"""
import hashlib
import json
import random
import sys
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = [r"[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", r"[一-龥ࠀ-一가-퟿]+"]

WORDS = """the of and to in is that for it was on are as with they be at one have this from or had by hot word but what some
we can out other were all there when up use your how said an each she which do their time if will way about many then them
write would like so these her long make thing see him two has look more day could go come did number sound no most people my
over know water than call first who may down side been now find any new work part take get place made live where after back
little only round man year came show every good me give our under name very through just form sentence great think say help
low line differ turn cause much mean before move right boy old too same tell does set three want air well also play small end
put home read hand port large spell add even land here must big high such follow act why ask men change went light kind off
need house picture try us again animal point mother world near build self earth father head stand own page should country""".split()

SCRIPTS = [
    "Größe, naïve façade, Ærøskøbing, Łódź, İstanbul ıSTANBUL, ΣΊΣΥΦΟΣ ΟΔΥΣΣΕΎΣ, ﬁne ﬂuﬀy ½ ² ㎏ Å Å ① Ⅷ ⅷ",
    "Съешь ещё этих мягких французских булок, да выпей же чаю. Київ, Ѐ Ѝ Ѐ",
    "שלום עולם, בְּרֵאשִׁית בָּרָא אֱלֹהִים. مرحبا بالعالم، ١٢٣ ٤٥٦ بِسْمِ اللّٰهِ",
    "हिन्दी में क्षत्रिय और ज्ञान, १२३. বাংলা ক্ষ, தமிழ் நாடு, ไทยกำลังเขียนภาษา ภาษาไทย, မြန်မာ, ខ្មែរ, ལྷ་ས",
    "我能吞下玻璃而不伤身体。私はガラスを食べられます。ｶﾞﾗｽ ガ 한국어 각 각 값, ＡＢＣ１２３！？「」、。",
    "Tiếng Việt: chữ Quốc ngữ, e\u0301 é ệ ệ a\u0328\u0301 q\u0307\u0323 q\u0323\u0307 \u0344 \u212B \u2126",
    "🙂👩‍👩‍👧‍👦🇩🇪🏴󠁧󠁢󠁥󠁮󠁧󠁿 ❤️ ☝🏽 ⌛ ✈︎ \U0001F1E6 \U000E0001 \U0010FFFF \uE000 \u0378",
    "ᚠᛇᚻ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐌰𐌱 𓀀𓁐 𒀀 ꙮ ⓐⓑ 🅐 🄰 ª º ʰ ₂ ⁿ \u0345 \u05C4 \u093C \u200C\u200D\u200Ba\u2060b\uFEFFc",
]
CODE = [
    "static int f(struct buffer *self) {\n\tif (self == NULL)\n        return -1;\n\n\treturn self->len; // größer\n}\n",
    "def f(x: int) -> str:\n    \"\"\"Doc.\"\"\"\n    return f'{x:>8.3f}' if x != 0x1F else \"a\\n\"\n\n\nclass A(B):\n    pass\n",
    "SELECT * FROM t WHERE a >= 10_000 AND b LIKE '%x%' -- don't\r\n<a href=\"https://e.org/?q=1&r=2\">I'LL, we'Ve, it's</a>\r\n",
    "\t\t\tif x:\n\t\t\t\t\ty = [1,2,3,45,678,9012,34567]\n$ make -j8 2>&1 | tee log.txt && echo 'done' || exit 1\n",
]
WHITESPACE = ["", " ", "  ", "\n", "\t", "\r\n", " \n ", "   a", "a   ", "a  b   c    d", "\n\n\na\n\n", " \t \n \r \x0b \x0c x",
              "a\u00a0b\u2003c\u3000d\u2028e\u2029f\u0085g\u1680h\u180ei", " " * 300, "x" + "\n" * 50 + "y" + "\t" * 33,
              "line\n  indented\n    more\n", "trailing \n", "a " * 100, "\u2581 \u2581a\u2581\u2581b", "a \u2581b"]
ADDED = ["<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> \n<|endoftext|><|endoftext|>", "<|endoftext", "x <lstrip> y\t<lstrip>z",
         "x <rstrip> \n y<rstrip>", "<both>  <both> <lstrip>", "a word wordy sword word. word_ (word) éword", "<Norm> <norm> <NORM>",
         "[special][special] [SPECIAL]", "<0x41> <unk> <s> </s> <pad>", "New York new york", "<|a|><|ab|><|abc|><|abcd", "Straße <straße>"]
BROKEN = [b"\xff\xfe stray \x80 cut \xe2\x96", b"surrogate \xed\xa0\x80, overlong \xc0\xaf, beyond \xf4\x90\x80\x80", b"\xe2\x96\xf0\x9f\x99x\xc3",
          bytes(range(256)), b"caf\xe9 \xe2\x82 <|endoftext|>\xf0", b"\xf0\x9f\x98\x80\xf0\x9f\x98"]


def texts():
    draw = random.Random(1)
    made = SCRIPTS + CODE + WHITESPACE + ADDED
    for i in range(40):
        made.append(" ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, 40))).capitalize() + draw.choice(".!?…,;:"))
    alphabet = "ab AB01 \n\t'’.,-_é\u0301ß漢字ガ🙂\u200d\u2581<|>sS"
    for i in range(60):
        made.append("".join(draw.choice(alphabet) for _ in range(draw.randrange(1, 60))))
    # Any character that Python's version of Unicode has. `tokenizers` has a newer version than Oniguruma here.
    known = [[chr(c) for c in range(*part) if unicodedata.category(chr(c)) != "Cn"]
             for part in [(32, 0x250), (0x250, 0x3000), (0x3000, 0xD800), (0x10000, 0x1F000)]]
    for i in range(60):
        made.append("".join(draw.choice(draw.choice(known)) for _ in range(30)))
    made += ["word" * 3000, "x" * 20000, "ab" * 40 + " " + "漢" * 2000, "don't " * 500, "".join(SCRIPTS + CODE) * 3]
    return made


def corpus():
    return SCRIPTS * 3 + CODE * 5 + [" ".join(WORDS)] * 4 + texts()[-170:-130]


def byte_level(steps, normalizer=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = steps
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=1200, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def add_tokens(tokenizer):
    tokenizer.add_tokens([AddedToken("<lstrip>", lstrip=True), AddedToken("<rstrip>", rstrip=True),
                          AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
                          AddedToken("word", single_word=True), AddedToken("<Norm>", normalized=True),
                          AddedToken("New York", normalized=True), AddedToken("<|a|>", normalized=False),
                          AddedToken("<|ab|>", normalized=False), AddedToken("<|abc|>", normalized=False),
                          AddedToken("  ", normalized=False), AddedToken("<straße>", normalized=True)])
    tokenizer.add_special_tokens([AddedToken("[special]", normalized=True, special=True), "<pad>"])
    return tokenizer


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def bytes_only():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def without_type(tokenizer):
    """Returns the tokenizer in the format of earlier versions, and its file: merges are strings, and the model has no type."""
    file = json.loads(tokenizer.to_str())
    file["model"]["merges"] = [" ".join(merge) for merge in file["model"]["merges"]]
    del file["model"]["type"]
    return Tokenizer.from_str(json.dumps(file)), json.dumps(file)


def sentencepiece_bpe(byte_fallback=True, fuse=True):
    """A tokenizer like those of Llama 2 and Mistral: spaces become marks, and characters without a token become bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=fuse))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    trainer = trainers.BpeTrainer(vocab_size=len(special) + 500, special_tokens=special, show_progress=False,
                                  limit_alphabet=120)
    pieces = [piece for line in corpus() for piece in line.replace(" ", " ▁").split()]
    tokenizer.train_from_iterator(pieces, trainer)
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [token for token in file["added_tokens"] if not token["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(file))


def unigram(pre_tokenizer, decoder, byte_fallback, normalizer=None):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoder
    trainer = trainers.UnigramTrainer(vocab_size=600, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator([text for text in corpus() if "🙂" not in text], trainer)
    if byte_fallback:
        file = json.loads(tokenizer.to_str())
        known = {piece for piece, _ in file["model"]["vocab"]}
        file["model"]["vocab"] += [[f"<0x{b:02X}>", -20.0] for b in range(256) if f"<0x{b:02X}>" not in known]
        file["model"]["byte_fallback"] = True
        tokenizer = Tokenizer.from_str(json.dumps(file))
    return tokenizer


def tokenizers():
    """Yields (name, tokenizer, contents of its file). The contents are None if the tokenizer itself is to be saved."""
    metaspace = pre_tokenizers.Metaspace
    yield "gpt2", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)), None
    prefix = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    prefix.post_processor = processors.RobertaProcessing(("<|endoftext|>", 0), ("<|endoftext|>", 0))
    yield "gpt2_prefix_space", add_tokens(prefix), None
    llama3 = add_tokens(byte_level(sequence(split(LLAMA3), bytes_only()), ignore_merges=True))
    llama3.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<pad> $A", pair="<pad> $A <pad> $B", special_tokens=[("<pad>", llama3.token_to_id("<pad>"))])])
    yield "llama3", llama3, None
    yield "qwen2", add_tokens(byte_level(sequence(split(QWEN2), bytes_only()), normalizers.NFC())), None
    old, text = without_type(byte_level(sequence(*map(split, DEEPSEEK), pre_tokenizers.Digits(True), bytes_only())))
    yield "deepseek", old, text
    yield "nfkc_lower", add_tokens(byte_level(sequence(pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(),
                                                       pre_tokenizers.Digits(False), bytes_only()),
                                              normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]))), None
    yield "words", byte_level(sequence(pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"), bytes_only()),
                              normalizers.NFKD()), None
    for behavior in ["removed", "merged_with_previous", "merged_with_next", "contiguous"]:
        yield behavior, byte_level(sequence(split(r"[\s,.]|[0-9]{2}", behavior), split("é|", "isolated"),
                                            pre_tokenizers.Split("it", behavior, True), bytes_only()), normalizers.NFD()), None
    yield "bytes_then_split", byte_level(sequence(bytes_only(), split("Ġ", "merged_with_next"))), None
    replace = normalizers.Sequence([normalizers.Replace(Regex(r"\s{2,}|z+"), "~"), normalizers.Replace("a.", "<.>")])
    yield "replace", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), replace), None
    yield "sentencepiece_bpe", add_tokens(sentencepiece_bpe()), None
    yield "sentencepiece_bpe_unknown", sentencepiece_bpe(byte_fallback=False), None
    yield "sentencepiece_bpe_unfused", sentencepiece_bpe(byte_fallback=False, fuse=False), None
    fallback = decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()])
    yield "unigram_bytes", add_tokens(unigram(metaspace(), fallback, True)), None
    yield "unigram_first", add_tokens(unigram(metaspace("▁", "first", True), decoders.Metaspace("▁", "first"), False)), None
    yield "unigram_never", unigram(sequence(metaspace("▁", "never", False), pre_tokenizers.Digits(True)),
                                   decoders.Metaspace("▁", "never"), True, normalizers.NFKC()), None
    plain = unigram(pre_tokenizers.WhitespaceSplit(), decoders.Metaspace(), False)
    file = json.loads(plain.to_str())
    file["decoder"] = None
    yield "no_decoder", Tokenizer.from_str(json.dumps(file)), json.dumps(file)


def cases(tokenizer):
    made = [(text, None) for text in texts()] + [(raw.decode(errors="replace"), raw.hex()) for raw in BROKEN]
    for text, raw in made:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        case = {"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)}
        yield case | ({"hex": raw} if raw else {})
    draw = random.Random(2)
    for _ in range(30):  # sequences of ids that no text is encoded to
        ids = [draw.randrange(tokenizer.get_vocab_size()) for _ in range(12)]
        yield {"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)}


# All characters of the planes that have more than one class, and the ends of the blocks between them, each of which is
# unassigned or for private use as a whole.
CLASS_RANGES = [(1, 0x33500), (0x3D000, 0x40100), (0xDFF00, 0xE0300), (0xEFF00, 0xF0100), (0xFFF00, 0x100100), (0x10FF00, 0x110000)]


def separated(pre_tokenizer, block):
    """Returns the characters of a block that a pre-tokenizer separates from an x on both sides."""
    pieces = pre_tokenizer.pre_tokenize_str("".join(f"x{c}x" for c in block))
    return "".join(piece for piece, _ in pieces if len(piece) == 1 and piece != "x")


def characters(file):
    """Writes a JSON list of {"text", "digests": {property: SHA-256}}: blocks of characters, and what components make of them."""
    made = []
    for first, end in [(c, min(c + 2048, end)) for begin, end in CLASS_RANGES for c in range(begin, end, 2048)]:
        block = [chr(c) for c in range(first, end) if not 0xD800 <= c < 0xE000]
        text = "".join(block)
        results = {"numeric": separated(pre_tokenizers.Digits(True), block),
                   "punctuation": separated(pre_tokenizers.Punctuation(), block),
                   "symbol": separated(pre_tokenizers.Whitespace(), block),
                   "not space": "".join(piece for piece, _ in pre_tokenizers.WhitespaceSplit().pre_tokenize_str(text)),
                   "lower": normalizers.Lowercase().normalize_str(text)}
        # Each character alone, and between marks of the last and the first combining class.
        marked = "".join(f"{c}a\u0345{c}\u0334a" for c in block)
        for form in (normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD):
            results[form.__name__] = form().normalize_str(marked)
        made.append({"text": text, "digests": {name: hashlib.sha256(result.encode()).hexdigest() for name, result in results.items()}})
    file.write_text(json.dumps(made))


def classes(file):
    """Writes {"ranges": CLASS_RANGES, "left": {pattern: SHA-256 of those characters that the pattern does not match}}."""
    everything = "".join(chr(c) for first, end in CLASS_RANGES for c in range(first, end) if not 0xD800 <= c < 0xE000)
    names = "L M N P S Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Z Zs Cc Co Word PosixPunct".split()
    patterns = [rf"\p{{{name}}}" for name in names] + [rf"[\P{{{name}}}]" for name in "L M N P S Mn Nd".split()]
    patterns += [r"[\p{^L}]", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\h", r"\R", r"\O", ".", r"[^\w\s]", r"[\w&&[^\d]]", r"(?i:[a-zß])"]
    patterns += ["[[:punct:]]", "[^[:punct:]]", "[[:^punct:]]", "[[:punct:][:space:]]", "[][:punct:]]", r"[^\s\p{L}\p{N}]", r"[\p{P}\p{S}]"]
    patterns += [f"[[:{name}:]]" for name in "ascii blank cntrl space xdigit".split()]
    # Other names of properties, and the effect of (?i) on properties outside of brackets.
    names = "Letter Uppercase_Letter Lowercase_Letter LC Nonspacing_Mark Decimal_Number Other_Symbol Dash_Punctuation C Other Cn Unassigned Cf Digit"
    patterns += [rf"\p{{{name}}}" for name in names.split()] + [r"\P{Letter}", r"\P{Cn}", r"\P{C}", r"[\p{Cn}a]", r"[^\p{C}]"]
    patterns += ["[[:word:]]", "[[:^word:]]", "[^[:word:]]", "[[:digit:]]", "[[:^digit:]]", r"\b.", r"\B."]
    patterns += [rf"(?i){one}" for one in [r"\p{Lu}", r"\P{Lu}", r"\p{Ll}", r"\P{Ll}", r"\p{L}", r"\w", r"\W", r"\d", r"\p{PosixPunct}"]]
    patterns += [r"(?i:a)|\p{Lu}", r"(?i:\p{Lu})", r"(?:(?i)a|\p{Lu})|\p{Lt}", r"(?i)(?-i:\p{Lu})", r"(?i)\b."]
    # Scripts and other properties, some of which Unicode 15 and 16 extended.
    names = "Han Alpha Alnum Upper Lower Graph Punct Common Emoji Emoji_Presentation"
    scripts = ("Hiragana Katakana Hangul Thai Arabic Latin Cyrillic Greek Devanagari Kannada Lao Myanmar Khojki Balinese Inherited "
               "Egyptian_Hieroglyphs Khitan_Small_Script")
    patterns += ["[" + "".join(rf"\p{{{name}}}" for name in scripts.split()) + "]"]  # disjoint
    patterns += [rf"\p{{{name}}}" for name in names.split()] + [r"\P{Han}", r"[^\p{Han}]", r"[\p{L}&&[^\p{Han}]]", r"(?i)\p{Lower}"]
    patterns += [f"[[:{name}:]]" for name in "alnum alpha graph lower upper ^alpha".split()] + ["(?i)[[:alpha:]]"]
    made = {}
    for pattern in patterns:
        left = normalizers.Replace(Regex(pattern), "").normalize_str(everything)
        made[pattern] = hashlib.sha256(left.encode()).hexdigest()
    file.write_text(json.dumps({"ranges": CLASS_RANGES, "left": made}))


def main(folder):
    for name, tokenizer, text in tokenizers():
        (folder / f"{name}.json").write_text(text or tokenizer.to_str(), encoding="utf-8")
        (folder / f"{name}.cases").write_text(json.dumps(list(cases(tokenizer))), encoding="utf-8")


if __name__ == "__main__":
    modes = {"--classes": classes, "--characters": characters}
    modes[sys.argv[1]](Path(sys.argv[2])) if sys.argv[1] in modes else main(Path(sys.argv[1]))
