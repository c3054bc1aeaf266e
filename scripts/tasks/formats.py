"""Items of benchmarks as records {"context", "choices", "answer"} for `lyceum eval --tasks`. The contexts, the choices and the
blank between them are those of the tasks of lm-evaluation-harness (lm_eval/tasks/NAME). The blank is the last character of the
context: `lyceum eval` moves it to the choice, and acc_norm does not count it, as in the harness."""

import random
import re


def hellaswag(record: dict) -> dict:
    """lm_eval/tasks/hellaswag/utils.py: activity_label, ctx_a, ctx_b, endings, label."""
    context = f"{record['activity_label']}: {record['ctx_a']} {record['ctx_b'].capitalize()}"
    return item(cleaned(context), [cleaned(ending) for ending in record["endings"]], int(record["label"]))


def cleaned(text: str) -> str:
    """Removes the marks of WikiHow that remain in HellaSwag."""
    text = re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ")


def piqa(record: dict) -> dict:
    """lm_eval/tasks/piqa/piqa.yaml: goal, sol1, sol2, label."""
    return item(question(record["goal"]), [record["sol1"], record["sol2"]], int(record["label"]))


def arc(record: dict) -> dict:
    """lm_eval/tasks/arc/arc_easy.yaml: question, choices, answerKey; in AI2's own files, the choices are a list in question."""
    asked, choices = record["question"], record.get("choices")
    if isinstance(asked, dict):
        choices = {key: [choice[key] for choice in asked["choices"]] for key in ("text", "label")}
        asked = asked["stem"]
    return item(question(asked), choices["text"], choices["label"].index(record["answerKey"]))


def question(text: str) -> str:
    return f"Question: {text}\nAnswer:"


def item(context: str, choices: list[str], answer: int) -> dict:
    if not 0 <= answer < len(choices):
        raise ValueError(f"the answer {answer} is not one of {len(choices)} choices")
    return {"context": context + " ", "choices": choices, "answer": answer}


def lambada(records: list[dict], distractors: int, seed: int) -> list[dict]:
    """lm_eval/tasks/lambada/lambada_openai.yaml: text, whose last word follows the rest. The harness asks whether the word is the
    most probable continuation of all; here it competes with the last words of other records, `distractors` of them."""
    drawn = random.Random(seed)
    parts = [record["text"].rsplit(" ", 1) for record in records]
    if any(len(part) < 2 for part in parts):
        raise ValueError(f"record {[len(part) < 2 for part in parts].index(True) + 1}: the text is a single word")
    words = sorted({word for _, word in parts})
    if len(words) <= distractors:
        raise ValueError(f"{len(words)} different last words are too few for {distractors} distractors")
    return [shuffled(context, word, drawn.sample([other for other in words if other != word], distractors), drawn)
            for context, word in parts]


def shuffled(context: str, right: str, wrong: list[str], drawn: random.Random) -> dict:
    choices = [right, *wrong]
    drawn.shuffle(choices)
    return item(context, choices, choices.index(right))


FORMATS = {"hellaswag": hellaswag, "piqa": piqa, "arc": arc}
