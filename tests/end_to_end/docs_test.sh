#!/usr/bin/env bash
# Usage: docs_test.sh LYCEUM SOURCE_DIR. Runs the commands of README and docs word for word, page by page, in a folder that
# looks like a clone after scripts/quickstart.sh. The word after ``` determines what is done with a block: `sh`, `python` and
# `ini` are run; `sh slow`, `sh gpu` and `sh cluster` are only listed as not run. To save time, `lyceum` in that folder is a
# script that makes models and batches small and runs short.
. "$(dirname "$0")/lib.sh" "$@"
python=${LYCEUM_PYTHON:-$source/.venv/bin/python}
clone=$work/clone
export LYCEUM_PROGRAM=$lyceum HOME=$work/home PATH=$work/bin:$PATH OMP_WAIT_POLICY=passive

mkdir -p "$work/bin" "$clone/build/cpu/apps" "$HOME/text"
for part in configs scripts docs; do ln -s "$source/$part" "$clone/$part"; done
ln -s "$(dirname "$(dirname "$python")")" "$clone/.venv"
cp -r "$source/docs" "$source/lib" "$source/apps" "$HOME/text"
cat >"$work/bin/lyceum" <<'END'
#!/usr/bin/env bash
# Runs the program with small models: reduces widths and lengths, but no value that a mesh depends on.
small=()
if [[ $1 == train ]]; then
  small=(--model.hidden=24 --moe.expert_hidden=8 --batch.seq_len=16 --eval.batches=1 --eval.every=0 --checkpoint.every=0)
  case $* in
    *stages.ini*) ;;  # stages need their steps
    *deepseekmoe-small*) small+=(--model.layers=2 --model.hidden=32 --run.steps=1) ;;
    *--run.dir=*) small+=(--run.steps=1) ;;
    *) small+=(--run.steps="$STEPS") ;;
  esac
fi
exec "$LYCEUM_PROGRAM" "$@" "${small[@]}"
END
chmod +x "$work/bin/lyceum"
ln -s "$work/bin/lyceum" "$clone/build/cpu/apps/lyceum"

# --- writes every block to a file PAGE.LINE.KIND, those of `sh` to one script per page; lists blocks that are not run
python3 - "$source" "$work" <<'END' || fail "a fence of README or docs has no label"
import pathlib, re, sys
source, work = map(pathlib.Path, sys.argv[1:])
(work / "pages").mkdir()
kinds = {"sh", "python", "ini", "text", "cpp", "sh slow", "sh gpu", "sh cluster"}
left_out, wrong = [], []
for page in [source / "README.md", *sorted((source / "docs").glob("*.md"))]:
    name = page.relative_to(source)
    script = ""
    for block in re.finditer(r"^```(.*)\n((?s:.*?))^```$", page.read_text(), re.MULTILINE):
        line = page.read_text().count("\n", 0, block.start()) + 1
        kind, text = block[1], block[2]
        if kind not in kinds:
            wrong.append(f"{name}:{line}: ```{kind}")
        elif kind == "sh":
            script += f"echo '# {name}:{line}'\n{text}"
        elif kind in ("python", "ini"):
            (work / "pages" / f"{page.stem}.{line}.{kind}").write_text(text)
        elif kind.startswith("sh "):
            left_out.append(f"not run, {kind[3:]}: {name}:{line}: {text.splitlines()[0]}")
    if script:
        (work / "pages" / f"{page.stem}.sh").write_text(script)
print("\n".join(wrong + left_out))
sys.exit(bool(wrong))
END

# page FILE: runs the script in the clone; the last lines of its output show which command failed.
page() {
  (cd "$clone" && bash -euxo pipefail "$1") >"$work/out" 2>"$work/err" </dev/null || fail "$(basename "$1"), as written"
  echo "run: $(basename "$1"): $(grep -c '^# ' "$work/out") blocks"
}

# --- the files that quickstart.sh leaves behind
cd "$clone"
data=runs/quickstart/data
expect 0 lyceum tokenize --input "$HOME/text" --vocab 4096 --model $data/tokenizer.model --output $data/train --valid $data/valid
export STEPS=200
expect 0 mpirun -n 2 lyceum train --config configs/quickstart.ini
STEPS=210

mkdir data && cp $data/tokenizer.model data  # so that `tokenize` does not train one

page "$work/pages/README.sh"
for file in "$work"/pages/*.sh; do [[ $file == */README.sh ]] || page "$file"; done
for file in "$work"/pages/*.python; do
  expect 0 .venv/bin/python "$file"
  echo "run: $(basename "$file")"
done
for file in "$work"/pages/*.ini; do
  expect 0 "$lyceum" plan --config "$file" --print-config
  echo "run: $(basename "$file")"
done
