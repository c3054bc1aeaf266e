#!/usr/bin/env bash
# Usage: sources_test.sh LYCEUM ROOT. `lyceum tokenize` reads the same text as gzip, zstd, pzstd and Python's json, with any file
# names and links, or reports why a file is not read.
. "$(dirname "$0")/lib.sh" "$@"
cd "$work"
expect 0 "$lyceum" tokenize --input "$source/lib/io" --model tok.model --vocab 400 --output first

# tokens PREFIX INPUT … [OPTIONS]: tokenizes to PREFIX.
tokens() { expect 0 "$lyceum" tokenize --tokenizer tok.model --output "$1" --input "${@:2}"; }
# same A B: succeeds if the tokens of two prefixes are equal
same() { cmp "$1.bin" "$2.bin" && cmp "$1.idx" "$2.idx"; }
documents() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1] + ".json"))["documents"])' "$1"; }

# --- records, as Python's json reads them: those with a valid text are kept, in order
python3 - <<'END_OF_PYTHON'
import json

def deep(levels):
    return b"[" * levels + b"]" * levels

lines = [
    b'{"text": "plain", "id": 1}',
    b'{"text": "nan", "score": NaN, "most": Infinity, "least": -Infinity}',
    b'{"text": "too large", "n": 1e999, "m": -1e999, "k": ' + b"9" * 400 + b"}",
    b'{"note": "\\ud83d", "text": "lone half elsewhere"}',
    b'{"note": "\\ud83d\\u0041 \\udc00", "text": "more halves"}',
    b'{"note": "\xff\xfe caf\xe9", "text": "bad bytes elsewhere"}',
    b'{"text": "pair \\ud83d\\ude42 and \\u00e9 \\n \\" \\\\ \\/ \\b\\f\\r\\t"}',
    b'{"text": "pair beside nan \\ud83d\\ude42 \\u00e9 \\n \\" \\\\ \\/ \\b\\f\\r\\t", "x": [NaN, {"a": [1, -2.5e3, true, false, null, "s"]}]}',
    b'{"text": "deep", "meta": ' + deep(200) + b"}",
    b'{"text": "deep and nan", "meta": ' + deep(200) + b', "x": NaN}',
    b'{"text": "first", "text": "the last of equal keys"}',
    b'{"text": NaN, "text": "the last of equal keys again"}',
    b'\xef\xbb\xbf{"text": "mark"}',
    b'\xef\xbb\xbf{"text": "mark and nan", "x": NaN}',
    b'{"text": "return"}\r',
    b' \t{ "text" :\t"blanks" , "x" : NaN , "y" : { } , "z" : [ ] }  ',
    b'{"": "empty key", "text": "with an empty key"}',
    b'{"a.b": 1, "text": "with a dotted key"}',
    b'{"text": "nul \\u0000 byte"}',
    b'{"text": "a surrogate in the text \\udead"}',
    b'{"text": "bad bytes in the text \xff"}',
    b'{"text": NaN}', b'{"text": null}', b'{"text": ["a"]}', b'{"txt": "none"}', b'["text"]', b'"text"', b"17", b"NaN",
    b'{"text": "cut', b'{"text": "comma",}', b"{'text': 'quotes'}", b'{"text": "plus", "x": +1}', b'{"text": "more"} x',
    b'{"text": "more"}\0{"text": "more"}', b'{"text": "tab \t in it"}', b'{"text": "zero", "x": 01}', b'{"text": "x", "y": -NaN}',
    b'{"text": "x", "y": .5}', b'{"text": "x", "y": 1.}', b'{"text": "x", "y": inf}', b'{"text": "x", "y": "\\x41", "z": NaN}',
    b'{"text": "x", "y": "\\u12", "z": NaN}', b'{"text": "x" "y": NaN}', b'{"text": "x", "y": [NaN,]}', b'{text: "x"}',
    b'{"text": "x"} // note', b"",
]
kept, dropped = [], 0
for line in lines:
    if not line.strip(b" \t\r"):
        continue
    try:
        if line.startswith(b"\xef\xbb\xbf"):
            line = line[3:]
        text = json.loads(line.decode("utf-8", "surrogateescape"))["text"]
        text.encode("utf-8")
        kept.append(text)
    except (ValueError, KeyError, TypeError, AttributeError):
        dropped += 1
assert len(kept) == 19, kept
with open("odd.jsonl", "wb") as file:
    file.write(b"\n".join(lines) + b"\n")
with open("sound.jsonl", "w") as file:
    for text in kept:
        file.write(json.dumps({"text": text}) + "\n")
with open("dropped", "w") as file:
    file.write(str(dropped))
END_OF_PYTHON
tokens sound sound.jsonl
tokens odd odd.jsonl
same odd sound
equal "skipped records" "$(grep -oE '[0-9]+ (not JSON|without|whose)' "$work/out" | awk '{ sum += $1 } END { print sum }')" "$(cat dropped)"
says out '1 whose "text" has half of a surrogate pair \([^ ]*odd.jsonl:20\)'
says out '1 whose "text" is not UTF-8 \([^ ]*odd.jsonl:21\)'
says out '3 whose "text" is not a string'
says out 'not JSON'
python3 -c 'print("{\"text\": \"x\", \"y\": " + "[" * 5000 + "]" * 5000 + "}"); print("{\"text\": \"kept\"}")' >nested.jsonl
tokens nested nested.jsonl
equal "documents" "$(documents nested)" 1
says out "nests deeper than 1000 levels"

# --- which files hold records
for name in d.jsonl.zstd d.JSONL d.ndjson.gzip d.NdJson.ZST d.jsonlines; do
  case ${name,,} in
    *.zstd | *.zst) zstd -qc sound.jsonl >"$name" ;;
    *.gzip) gzip -c sound.jsonl >"$name" ;;
    *) cp sound.jsonl "$name" ;;
  esac
  tokens named "$name"
  same named sound
  equal "warnings" "$(wc -c <"$work/err")" 0
done
cp sound.jsonl part-00000
cp sound.jsonl sound.json
for name in part-00000 sound.json; do
  tokens named "$name" --json-key text
  same named sound
  tokens named "$name"
  equal "documents" "$(documents named)" 1
  says err "^warning: $work/$name: read as text although the first line is a JSON object; --json-key KEY reads each line"
done
python3 -c 'import json; print(json.dumps({"text": "word " * 9000}))' >long-line
tokens named long-line
says err "^warning: $work/long-line: read as text"
printf '{\n "text": "over several lines"\n}\n' >one.json
tokens named one.json
equal "warnings" "$(wc -c <"$work/err")" 0
python3 -c 'import json; [print(json.dumps({"prompt": "one", "completion": "two"})) for i in range(3)]' >chats.txt
tokens named chats.txt --chat plain
equal "documents" "$(documents named)" 3
python3 -c 'import json; print(json.dumps([{"text": "a"}, {"text": "b"}]))' >array.json
expect 3 "$lyceum" tokenize --tokenizer tok.model --output none --input array.json one.json --json-key text
says err "2 JSON, but not one record per line"

# --- the name of a link determines the format, not that of its target, as in the cache of a model hub
mkdir -p hub/blobs hub/snapshots/rev
cp sound.jsonl hub/blobs/5b1c9d
ln -s ../../blobs/5b1c9d hub/snapshots/rev/train.jsonl
for input in hub/snapshots/rev/train.jsonl hub/snapshots/rev hub/snapshots hub; do
  tokens linked "$input"
  same linked sound
done
says out "1 read under another name \\($work/hub/blobs/5b1c9d\\)"
mkdir links
ln -s "$work/hub/snapshots/rev" links/folder
ln -s .. links/loop
ln -s absent links/dangling
ln -s circle links/circle
ln -s part-00000 links.jsonl
tokens linked links.jsonl
same linked sound
mkdir around
mv links around
tokens linked around
same linked sound
says out "1 linked in a cycle \\($work/around/links/circle\\), 1 linked to a missing file \\($work/around/links/dangling\\), \
1 read under another name \\($work/around/links/loop\\)"

# --- other kinds of files, and files that are not read
mkdir others others/folder.jsonl others/.cache
cp sound.jsonl others/a.jsonl
cp sound.jsonl others/.cache/b.jsonl
mkfifo others/pipe.jsonl
bzip2 -c sound.jsonl >others/c.jsonl.bz2
xz -c sound.jsonl >others/d.jsonl.xz
python3 - <<'END_OF_PYTHON'
import zipfile
zipfile.ZipFile("others/e.zip", "w").writestr("a.txt", "text")
open("others/f.parquet", "wb").write(b"PAR1\x15\x04\x15\x00" + bytes(100) + b"PAR1")
open("others/g.txt", "w", encoding="utf-16").write("text of two bytes for each character")
open("others/h.jsonl", "w", encoding="utf-16").write('{"text": "a"}\n')
END_OF_PYTHON
tokens others others
same others sound
for words in "1 Parquet, to be converted to JSON lines" "2 UTF-16, to be converted with iconv" "1 a zip archive, to be unpacked" \
  "1 compressed with bzip2, not with gzip or zstd" "1 compressed with xz, not" "1 hidden \\($work/others/.cache\\)" \
  "1 not a regular file \\($work/others/pipe.jsonl\\)"; do
  says out "$words"
done
expect 3 timeout 20 "$lyceum" tokenize --tokenizer tok.model --output none --input others/pipe.jsonl
says err "others/pipe.jsonl is not a regular file"
expect 3 timeout 20 "$lyceum" tokenize --tokenizer tok.model --output none --input /dev/null
expect 2 timeout 20 "$lyceum" tokenize --tokenizer tok.model --output none --input -
says err "standard input"

# --- compression: the formats that the programs write and read
python3 -c '
for i in range(40000): print("{\"text\": \"record", i * i, "\"}")' >many.jsonl
tokens many many.jsonl
head -n 20000 many.jsonl >1.jsonl
tail -n +20001 many.jsonl >2.jsonl
both() { # COMMAND …: applies COMMAND to each half of the file
  "$@" <1.jsonl && "$@" <2.jsonl
}
compressed() { # NAME PROGRAM: PROGRAM decompresses the file to many.jsonl, and lyceum reads the same tokens.
  cmp <("$2" -dc "${@:3}" "$1") many.jsonl
  tokens packed "$1"
  same packed many
}
both gzip -c >members.jsonl.gz && compressed members.jsonl.gz gzip
{ gzip -c many.jsonl && head -c 5000 /dev/zero; } >zeros.jsonl.gz && compressed zeros.jsonl.gz gzip
{ gzip -c 1.jsonl && head -c 700 /dev/zero && gzip -c 2.jsonl && head -c 9 /dev/zero; } >padded.jsonl.gz
cmp <(python3 -c 'import gzip, shutil, sys; shutil.copyfileobj(gzip.open("padded.jsonl.gz"), sys.stdout.buffer)') many.jsonl
tokens packed padded.jsonl.gz && same packed many
both zstd -qc >frames.jsonl.zst && compressed frames.jsonl.zst zstd
pzstd -q -p 2 -c many.jsonl >pzstd.jsonl.zst
equal "skippable frame of pzstd" "$(head -c 4 pzstd.jsonl.zst | od -An -tx1 | tr -d ' ')" 502a4d18
compressed pzstd.jsonl.zst zstd
skippable() { printf '\x5f\x2a\x4d\x18\x05\x00\x00\x00notes'; }
{ skippable && zstd -qc 1.jsonl && skippable && skippable && zstd -qc 2.jsonl && skippable; } >skippable.jsonl.zst
compressed skippable.jsonl.zst zstd
zstd -qc --long=28 <many.jsonl >long.jsonl.zst  # from a pipe: with a known length zstd would reduce the window
expect 1 zstd -dc long.jsonl.zst
compressed long.jsonl.zst zstd --long=28
frame() { printf '\x28\xb5\x2f\xfd'"$1"'\x31\x00\x00hello\n'; }  # HEADER: a frame with one raw block
frame '\x00\xa8' >window.zst
equal "text with a window of 2 GiB" "$(zstd -dc --long=31 window.zst)" hello
echo hello >hello
tokens packed window.zst
tokens hello hello
same packed hello

refuses() { # FILE WORDS
  expect 3 "$lyceum" tokenize --tokenizer tok.model --output none --input "$1"
  says err "$2"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
}
{ gzip -c many.jsonl && echo garbage; } >garbage.jsonl.gz  # gzip warns of it, exit code 2
refuses garbage.jsonl.gz "garbage.jsonl.gz is damaged at byte $(gzip -c many.jsonl | wc -c): what follows is not gzip data"
{ zstd -qc many.jsonl && echo garbage; } >garbage.jsonl.zst
expect 1 zstd -dc garbage.jsonl.zst
refuses garbage.jsonl.zst "garbage.jsonl.zst is damaged at byte $(zstd -qc many.jsonl | wc -c): what follows is not zstd data"
frame '\x00\xb0' >window.zst
expect 1 zstd -dc --long=31 window.zst
refuses window.zst "window of more than 2 GiB"
frame '\x01\x58\x07' >dictionary.zst
expect 1 zstd -dc dictionary.zst
refuses dictionary.zst "compressed with a dictionary"
skippable >empty.jsonl.zst
refuses empty.jsonl.zst "1 empty"

# --- names that are not UTF-8
mkdir $'caf\xe9'
cp many.jsonl $'caf\xe9/d\xff.jsonl'
printf '{"text": 1}\n' | cat - many.jsonl >$'caf\xe9/e.jsonl'
tokens $'out\xe9/named' $'caf\xe9' --save-every 0
says out "1 whose"
cat $'caf\xe9/'*.jsonl >caf.jsonl
tokens named caf.jsonl
same $'out\xe9/named' named
cp tok.model $'caf\xe9/t\xff.model'
expect 0 "$lyceum" tokenize --tokenizer $'caf\xe9/t\xff.model' --output plain --input sound.jsonl
python3 -c 'import json, os; assert os.fsencode(json.load(open("plain.json"))["tokenizer"]) == b"t\xff.model"'

make_data
mkdir $'r\xe9' && cp data/* $'r\xe9'
run=("${tiny[@]}" --run.dir=$'r\xe9/run' --data.train=$'r\xe9/train' --data.valid=$'r\xe9/valid' --data.tokenizer=$'r\xe9/tokenizer.model'
  --run.prometheus=$'r\xe9/run.prom' --run.tensorboard=true)
expect 0 "$lyceum" "${run[@]}" --run.steps=6
expect 0 "$lyceum" "${run[@]}" --run.steps=8
says out "^resumed "
equal "warnings" "$(grep -c warning "$work/out" || true)" 0
expect 0 "$lyceum" eval --checkpoint=$'r\xe9/run' --json
python3 - <<'END_OF_PYTHON'
import json, os
assert b"r\xe9/run" in os.fsencode(json.load(open("out"))["checkpoint"])
for name in "metrics", "starts":
    lines = [json.loads(line) for line in open(b"r\xe9/run/" + name.encode() + b".jsonl")]
assert b"\ntrain = r\xe9/train\n" in os.fsencode(lines[0]["config"])
END_OF_PYTHON
expect 0 "$lyceum" generate --checkpoint=$'r\xe9/run' --prompt a --tokens 2
expect 0 "$lyceum" convert reset $'r\xe9/run' --out $'r\xe9/reset'
for command in show verify ls; do expect 0 "$lyceum" checkpoint "$command" $'r\xe9/run'; done
expect 0 "$lyceum" routing report $'r\xe9/run/routing.h5'
echo passed
