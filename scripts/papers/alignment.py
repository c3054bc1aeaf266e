"""DeepSeekMoE's alignment (arXiv:2401.06066, section 6): supervised fine-tuning of a mixture and of a dense model on chats."""
import chats
from compare import Claim, Difference, Spread, minus
from deepseekmoe import deepseekmoe
from lab import Lab, Model
from losses import about_items, parameters, percent
from page import Page, table
from smoe_dropout import dense  # its FFN is as wide as the 8 experts that deepseekmoe activates

models = [dense, deepseekmoe]
# The paper's rate is constant, and 1/42 of the highest of pre-training.
_tuning = {"data.samples": "packed", "data.document_mask": "true", "optim.lr": 5e-5, "optim.schedule": "constant", "optim.warmup_steps": 0}


def run(lab: Lab) -> Page:
    lab.train(models)
    made = chats.prepare(lab)
    steps = max(10, lab.steps // 3)
    tuned = {model.name: Model(f"{model.name}-chat", _tuning | {"run.steps": steps, "data.train": f"1 {made.train}", "data.valid": made.valid}, model, ("reset",))
             for model in models}
    lab.train(list(tuned.values()))
    everything = [*models, *tuned.values()]
    # A checkpoint of a chat model would otherwise pack and mask this text, too.
    on_text = (f"--data.valid={lab.corpus.valid()}", "--data.samples=stream", "--data.document_mask=false")
    on_chats = (f"--data.valid={made.valid}", "--data.samples=packed", "--data.document_mask=true")
    chat_loss, text_loss = lab.losses(everything, *on_chats), lab.losses(everything, *on_text)
    lab.losses(models)
    answers = {name: [100 * run[0]["acc_norm"] for run in of] for name, of in lab.tasks(everything, ("--tasks", str(made.questions))).items()}
    scores = lab.scores(everything)
    gain = {model.name: minus(answers[tuned[model.name].name], answers[model.name]) for model in models}
    page = Page("DeepSeekMoE (arXiv:2401.06066), section 6, Table 5",
                f"Models of the other pages are fine-tuned on {made.count:,} chats made from the manual pages of this machine (\"What is NAME?\", with the "
                f"description of the page as the answer), packed, with a constant rate, for {steps} steps, which read the chats "
                f"{made.passes(lab, steps):.1f} times (8 in the paper); only answers are trained. {made.asked} questions from held-out pages have four "
                "descriptions to choose from. The paper claims that mixtures can be aligned as well as dense models: DeepSeekMoE Chat 16B is "
                "comparable to dense models of 7B parameters, with 40 % of their computation. Here, both models have equal computation, so the mixture "
                "should be better. Accuracies of answers are per byte of the answer.")
    none = [0.0] * len(lab.seeds)
    comparable = "Table 5: comparable, with 40 % of the computation"
    page.claims += [
        *[Claim.above(f"fine-tuning raises the accuracy of {model.name} on questions about held-out pages", "section 6", gain[model.name], none, unit="points")
          for model in models],
        Claim.above(f"after fine-tuning, deepseekmoe answers more questions than {dense.name}, with equal computation", comparable,
                    answers[tuned[deepseekmoe.name].name], answers[tuned[dense.name].name], unit="points"),
        Claim.above(f"after fine-tuning, {dense.name} has a higher loss of answers than deepseekmoe, with equal computation", comparable,
                    chat_loss[tuned[dense.name].name], chat_loss[tuned[deepseekmoe.name].name]),
        Claim.above(f"fine-tuning raises the loss of {dense.name} on other text more than that of deepseekmoe", "not compared",
                    minus(text_loss[tuned[dense.name].name], text_loss[dense.name]), minus(text_loss[tuned[deepseekmoe.name].name], text_loss[deepseekmoe.name])),
    ]
    page.section("Before and after",
                 table(["model", "parameters", "activated", "loss of answers", "answers", "loss of other text", "cloze items"],
                       [[model.name, *parameters(lab, model), Spread.of(chat_loss[model.name]), percent(answers[model.name]), Spread.of(text_loss[model.name]),
                         percent(scores[model.name])] for model in everything]), about_items,
                 "The gain of answers is " + ", ".join(f"{Difference.of(gain[model.name], none)} points ({model.name})" for model in models) +
                 "; chance is 25 %.")
    page.results |= {"loss_of_answers": chat_loss, "loss_of_text": text_loss, "answers": answers, "score": scores}
    page.models = everything
    return page
