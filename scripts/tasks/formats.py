"""Items of benchmarks as records {"context", "choices", "answer"} for `lyceum eval --tasks`. The contexts, the choices and the
blank between them are those of the tasks of lm-evaluation-harness (lm_eval/tasks/NAME). The blank is the last character of the
context: `lyceum eval` moves it to the choice, and acc_norm does not count it, as in the harness."""

import json
import random
import re


def hellaswag(record: dict) -> dict:
    """lm_eval/tasks/hellaswag/utils.py: activity_label, ctx_a, ctx_b, endings, label."""
    activity, first, second = (text_of(record, key) for key in ("activity_label", "ctx_a", "ctx_b"))
    context = f"{activity}: {first} {second.capitalize()}"
    return item(cleaned(context), [cleaned(ending) for ending in record["endings"]], label_of(record))


def text_of(record: dict, key: str) -> str:
    if not isinstance(record[key], str):
        raise ValueError(f"{key} is {json.dumps(record[key])}, not a text")
    return record[key]


def label_of(record: dict) -> int:
    label = record["label"]
    if isinstance(label, bool) or not re.fullmatch("[0-9]+", str(label)):
        raise ValueError(f"the label {json.dumps(label)} is not a number")
    return int(label)


def cleaned(text: str) -> str:
    """Removes the marks of WikiHow that remain in HellaSwag."""
    text = re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ")


def piqa(record: dict) -> dict:
    """lm_eval/tasks/piqa/piqa.yaml: goal, sol1, sol2, label."""
    return item(question(text_of(record, "goal")), [text_of(record, "sol1"), text_of(record, "sol2")], label_of(record))


def arc(record: dict) -> dict:
    """lm_eval/tasks/arc/arc_easy.yaml: question, choices, answerKey; in AI2's own files, the choices are a list in question."""
    if isinstance(record["question"], dict):
        asked, choices = text_of(record["question"], "stem"), record["question"]["choices"]
        choices = {key: [choice[key] for choice in choices] for key in ("text", "label")}
    else:
        asked, choices = text_of(record, "question"), record["choices"]
    return item(question(asked), choices["text"], choices["label"].index(record["answerKey"]))


def question(text: str) -> str:
    return f"Question: {text}\nAnswer:"


def item(context: str, choices: list[str], answer: int) -> dict:
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise ValueError(f"the choices {json.dumps(choices)} are not a list of texts")
    if not 0 <= answer < len(choices):
        raise ValueError(f"the answer {answer} is not one of {len(choices)} choices")
    return {"context": context + " ", "choices": choices, "answer": answer}


def lambada(record: dict) -> tuple[str, str]:
    """lm_eval/tasks/lambada/lambada_openai.yaml: text. Returns its last word, and the rest before it."""
    context, blank, word = text_of(record, "text").rstrip().rpartition(" ")
    if not blank:
        raise ValueError("the text is a single word")
    return context, word


def with_distractors(parts: list[tuple[str, str]], distractors: int, seed: int) -> list[dict]:
    """Returns items of LAMBADA. The harness asks whether the word is the most probable continuation of all; here it competes with
    the last words of other records, `distractors` of them."""
    drawn = random.Random(seed)
    words = sorted({word for _, word in parts})
    if len(words) <= distractors:
        raise ValueError(f"{len(words)} different last words are too few for {distractors} distractors")
    return [shuffled(context, word, drawn.sample([other for other in words if other != word], distractors), drawn)
            for context, word in parts]


def shuffled(context: str, right: str, wrong: list[str], drawn: random.Random) -> dict:
    choices = [right, *wrong]
    drawn.shuffle(choices)
    return item(context, choices, choices.index(right))


FORMATS = {"hellaswag": hellaswag, "piqa": piqa, "arc": arc, "lambada": lambada}
