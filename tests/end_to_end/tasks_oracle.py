#!/usr/bin/env python3
"""Checks the log of `lyceum eval --tasks … --task-log LOG` with the exported model, by the rules of lm-evaluation-harness
0.4.9.2 and later:

    tasks_oracle.py MODEL_FOLDER MAX_LENGTH TASK LOG RESULT [TASK LOG RESULT ...]

The numbers of tokens must be those of the tokenizer that transformers loads. If torch is installed, the log-probabilities must be
those of the model within 1e-4, and RESULT, the output of --json, must have the accuracies that follow from them. Prints what was
compared.
"""
import importlib.util
import json
import math
import sys

import transformers

folder, max_length, *files = sys.argv[1:]
max_length = int(max_length)
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
model = None
if importlib.util.find_spec("torch") is not None:
    import torch

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
prefix = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id


def encode(text: str) -> list[int]:
    """HFLM.tok_encode(): the tokenizer adds its special tokens, unless the text begins with one."""
    special = {"add_special_tokens": False} if text.startswith(tokenizer.decode(prefix)) else {}
    return tokenizer.encode(text, **special)


def encode_pair(context: str, continuation: str) -> tuple[list[int], list[int]]:
    """TemplateLM.loglikelihood() and _encode_pair(), except for a context of spaces alone, which the harness refuses unless
    the tokenizer adds a special token."""
    if not context.strip():
        alone = tokenizer.encode(context + continuation, add_special_tokens=False)
        return ([prefix], alone) if alone[0] != prefix else (alone[:1], alone[1:])
    spaces = len(context) - len(context.rstrip())
    if spaces > 0:
        continuation = context[-spaces:] + continuation
        context = context[:-spaces]
    before = encode(context)
    return before, encode(context + continuation)[len(before):]


def check(task: str, log: str, result: str) -> None:
    items = [json.loads(line) for line in open(task, encoding="utf-8") if line.strip()]
    logged = [json.loads(line) for line in open(log)]
    assert len(items) == len(logged) > 0, (len(items), len(logged))
    pairs = [[encode_pair(item["context"], choice) for choice in item["choices"]] for item in items]
    cut = 0
    for item, line, choices in zip(items, logged, pairs):
        assert line["answer"] == item["answer"] and line["bytes"] == [len(choice.encode()) for choice in item["choices"]], line
        assert line["tokens"] == [len(continuation) for _, continuation in choices], (item, line, choices)
        cut += sum(len(context) + len(continuation) > max_length + 1 for context, continuation in choices)
    scores = json.load(open(result))["tasks"][0]
    assert scores["cut"] == cut and scores["items"] == len(items), (scores, cut)
    if model is None:
        print("tokens")
        return
    worst, right, right_norm = 0.0, 0, 0
    with torch.no_grad():
        for item, line, choices in zip(items, logged, pairs):
            sums = []
            for context, continuation in choices:
                inputs = torch.tensor([(context + continuation)[-(max_length + 1):][:-1]])
                probabilities = torch.log_softmax(model(inputs).logits[0].double(), dim=-1)[-len(continuation):]
                sums.append(probabilities.gather(1, torch.tensor(continuation)[:, None]).sum().item())
            worst = max(worst, *(abs(a - b) for a, b in zip(sums, line["log_probabilities"])))
            norms = [total / len(choice.encode()) for total, choice in zip(sums, item["choices"])]
            right += sums.index(max(sums)) == item["answer"]
            right_norm += norms.index(max(norms)) == item["answer"]
    assert worst <= 1e-4, worst
    n = len(items)
    for key, count in ("acc", right), ("acc_norm", right_norm):
        share = count / n
        assert abs(scores[key] - share) <= 1e-12, (key, scores[key], share)
        error = math.sqrt(share * (1 - share) / (n - 1))
        assert abs(scores[key + "_stderr"] - error) <= 1e-12, (key, scores[key + "_stderr"], error)
    print(f"tokens, log-probabilities within {worst:.1e}, accuracies {right}/{n} and {right_norm}/{n}")


for first in range(0, len(files), 3):
    check(*files[first:first + 3])
