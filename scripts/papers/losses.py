"""Tables and curves of losses for most pages."""
import math
import statistics

from compare import Difference, Spread
from lab import Lab, Model
from page import Page, subplots, table


def millions(count: int) -> str:
    return f"{count / 1e6:.2f} M"


def parameters(lab: Lab, model: Model) -> tuple[str, str]:
    """Returns the numbers of all and of activated parameters, as text."""
    counted = lab.parameters(model)
    return millions(counted["total"]), millions(counted["activated"])


def loss_table(lab: Lab, models: list[Model], losses: dict, best: Model, pile_loss: dict[str, str] | None = None, scores: dict | None = None,
               paper_scores: tuple[str, dict[str, str]] = ("", {})) -> str:
    """Returns a table of losses. pile_loss: the losses of the paper by model; None if it has none. scores: the accuracies of each
    model on cloze items; None leaves them out. paper_scores: the paper's benchmark, and its accuracies by model."""
    of_paper = lambda text: [] if pile_loss is None else [text]
    benchmark, published = paper_scores
    scored = lambda paper, here: [] if scores is None else [*([paper] if benchmark else []), here]
    rows = []
    for model in models:
        of = losses[model.name]
        behind = "" if model is best else str(Difference.of(of, losses[best.name]))
        rows.append([model.name, *parameters(lab, model), *of_paper((pile_loss or {}).get(model.name, "")), Spread.of(of), behind,
                     *scored(published.get(model.name, ""), "" if scores is None else percent(scores[model.name]))])
    return table(["model", "parameters", "activated", *of_paper("paper: Pile loss"), "here: loss, mean ± sd", f"above {best.name}",
                  *scored(f"paper: {benchmark}", "here: cloze items")], rows)


def percent(values) -> str:
    """Returns mean ± standard deviation of shares in percent."""
    spread = Spread.of(values)
    return f"{spread.mean:.1f}" + ("" if math.isnan(spread.deviation) else f" ± {spread.deviation:.1f}") + " %"


about_items = ("Cloze items: the next word of held-out text among four that are about as frequent, of which a random choice is right in 25 %. They are "
               "the same for all models.")


def plot_losses(lab: Lab, axis, models: list[Model]) -> None:
    for model in models:
        runs = [[(line["step"], line["valid_loss"]) for line in lab.metrics(model, seed) if line.get("valid_loss") is not None]
                for seed in lab.seeds]
        steps = [step for step, _ in runs[0]]
        at = [[run[i][1] for run in runs] for i in range(len(steps))]
        axis.plot(steps, [statistics.fmean(losses) for losses in at], label=model.name, linewidth=1.5)
        axis.fill_between(steps, [min(losses) for losses in at], [max(losses) for losses in at], alpha=0.2, linewidth=0)
    axis.set_xlabel("step")
    axis.set_ylabel("held-out loss, nats per token")


def curves(lab: Lab, page: Page, models: list[Model], file: str) -> str:
    """Draws the validation loss over training, mean and range of the seeds. Returns the text that shows it on the page."""
    figure, (axis,) = subplots()
    plot_losses(lab, axis, models)
    axis.set_ylim(top=axis.get_ylim()[0] + 0.75 * (axis.get_ylim()[1] - axis.get_ylim()[0]))
    axis.legend(frameon=False)
    tokens = int(lab.base["eval.batches"]) * int(lab.base["batch.global"]) * int(lab.base["batch.seq_len"]) * len(lab.corpus.names)
    return (page.figure(file, "Held-out loss over training", figure) +
            f"\n\nMean and range of the seeds, on {tokens:,} held-out tokens; tables use all of the held-out text.")
